"""The judge of killed jobs, checked with histories of jobs that delete, clear or fill. It must
accept each possible history and find each impossible one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import jobs_planned_for_tests as planned
from jobs_planned_for_tests import Plan
from stories_of_jobs_for_tests import Story

# Cells 0 to 11 belong to zone 0. The first 24 batches put the even ones.
DELETES = Plan(1, ((2, 4), (4, 6)), deletes=frozenset({(0, 2), (0, 4), (1, 6)}))
PUTS, AGAIN = Plan(2, ((2, 3),)), Plan(3, ((2,),), deletes=frozenset({(0, 2)}))
ZONED = Plan(4, ((0, 1),), zone=0, deletes=frozenset({(0, 1)}))
CLEARS, SOME, WIDE = Plan(5, span=(0, 12)), Plan(6, span=(2, 5)), Plan(7, span=(0, 24))
# No batch puts cells of zone 4.
LAST = Plan(8, span=(48, 60))
FILLS = Plan(21, ((2, 48), (49, 50)), deletes=frozenset({(1, 50)}), fills=True)
LATER = Plan(22, ((48, 50, 51),), fills=True)
ABOVE = Plan(23, ((48, 49, 50, 51),), deletes=frozenset({(0, 51)}))
ALL = (DELETES, PUTS, AGAIN, ZONED, CLEARS, SOME, WIDE, LAST, FILLS, LATER, ABOVE)


def said(story: Story, number: int, seq: int = 10) -> None:
    """A final answer tells that a clearing job was adopted."""
    story.says(number, "adopted", seq, how="status")


def back(story: Story, *cells: int) -> Callable[[], None]:
    """Restores the earlier contents of cells."""
    before = {planned.key_of(cell): story.rows[planned.key_of(cell)] for cell in cells}
    return lambda: story.rows.update(before)


# --- Deletes --------------------------------------------------------------------------------------


def a_delete_is_lost(story: Story) -> None:
    story.puts(24)
    story.told.behind[1] = 24
    as_before = back(story, 2)
    story.adopts(1)
    as_before()


def a_deleted_row_comes_back(story: Story) -> None:
    story.puts(24)
    as_before = back(story, 2)
    story.adopts(1)
    story.looks()
    as_before()


def a_row_of_a_job_comes_back(story: Story) -> None:
    story.puts(24)
    story.adopts(2)
    as_before = back(story, 2)
    story.looks()
    story.adopts(3)
    story.looks()
    as_before()


def more_is_gone(story: Story) -> None:
    story.puts(24)
    story.adopts(1)
    del story.rows[planned.key_of(8)]


def a_later_put_is_gone(story: Story) -> None:
    story.puts(3)
    story.adopts(1)
    story.says(1, "adopted", 10)
    story.puts(24)
    del story.rows[planned.key_of(2)]


def a_later_row_is_gone(story: Story) -> None:
    for number in (3, 2):
        story.adopts(number)
        story.looks()
    del story.rows[planned.key_of(2)]


def an_earlier_part_wins(story: Story) -> None:
    story.adopts(1)
    del story.rows[planned.key_of(4)]


def a_later_part_is_lost(story: Story) -> None:
    story.adopts(1)
    story.rows[planned.key_of(6)] = story.rows[planned.key_of(4)]


def a_deleter_comes_twice(story: Story) -> None:
    story.puts(24)
    story.adopts(3)
    story.looks()
    story.puts(24)
    story.looks()
    story.adopts(3)


def deleters_come_twice(story: Story) -> None:
    """One of the two jobs would be possible, but neither can stand behind the put."""
    story.puts(24)
    for number in (1, 3):
        story.adopts(number)
        story.says(number, "adopted", number)
    story.puts(24)
    story.adopts(3)


def a_delete_in_a_zone_is_lost(story: Story) -> None:
    story.adopts(4)
    story.rows[planned.key_of(1)] = story.rows[planned.key_of(0)]


# --- Clears ---------------------------------------------------------------------------------------


def nothing_is_cleared(story: Story) -> None:
    story.puts(24)
    story.told.seqs = [(72, 24)]
    said(story, 5, 73)


def half_is_cleared(story: Story) -> None:
    story.puts(24)
    as_before = back(story, 14)
    story.adopts(7)
    said(story, 7, 73)
    as_before()
    story.told.behind[7] = 24


def more_is_cleared(story: Story) -> None:
    story.puts(24)
    story.adopts(5)
    said(story, 6, 73)


def no_job_clears(story: Story) -> None:
    story.puts(24)
    story.adopts(5)


def a_cleared_row_comes_back(story: Story) -> None:
    story.puts(24)
    as_before = back(story, 2)
    story.adopts(5)
    story.looks()
    as_before()
    said(story, 5)


def a_clear_is_lost(story: Story) -> None:
    story.puts(24)
    story.says(5, "pending")


def a_clear_comes_twice(story: Story) -> None:
    for _ in range(2):
        story.puts(24)
        story.looks()
        story.adopts(5)
        story.looks()
    said(story, 5)


def a_clear_comes_twice_against_its_number(story: Story) -> None:
    story.puts(24)
    story.adopts(5)
    story.puts(24)
    story.adopts(5)
    story.told.seqs = [(72, 24), (100, 32)]
    said(story, 5, 73)


def a_clear_is_at_two_places(story: Story) -> None:
    story.adopts(5)
    story.says(5, "adopted", 7)
    said(story, 5, 8)


def a_later_put_is_cleared(story: Story) -> None:
    story.puts(3)
    story.says(5, "adopted", 10)
    story.puts(24)
    story.adopts(5)
    said(story, 5, 10)


def a_later_job_is_cleared(story: Story) -> None:
    story.says(4, "adopted", 20)
    said(story, 5, 10)


def a_job_comes_behind_its_clear(story: Story) -> None:
    """The job was present, was cleared, and is present again."""
    story.adopts(4)
    story.looks()
    story.puts(24)
    story.adopts(5)
    story.looks()
    said(story, 5, 10)
    story.adopts(4)


def a_job_outlives_its_clear(story: Story) -> None:
    """Its cells were cleared, but the job stayed."""
    story.adopts(4)
    story.says(4, "adopted", 5)
    said(story, 5)
    del story.rows[planned.key_of(0)]


def a_job_is_lost_and_only_its_cells_were_cleared(story: Story) -> None:
    story.says(4, "adopted", 5)
    said(story, 6, 10)


def no_job_asked_to_clear(story: Story) -> None:
    del story.told.behind[5]
    story.adopts(5)
    said(story, 5)


def a_clear_was_aborted(story: Story) -> None:
    story.says(5, "aborted", how="abort")
    said(story, 5)


# --- Jobs that fill -------------------------------------------------------------------------------


def a_filling_row_is_lost(story: Story) -> None:
    story.says(21, "pending")


def it_is_seen_and_lost(story: Story) -> None:
    story.adopts(21)
    story.looks()
    story.rows.clear()


def half_of_it_comes(story: Story) -> None:
    story.adopts(21)
    del story.rows[b"own/1/21/1"]


def it_fills_nothing(story: Story) -> None:
    story.adopts(21)
    del story.rows[planned.key_of(48)]


def it_hides_a_put(story: Story) -> None:
    story.adopts(21)
    as_before = back(story, 2)
    story.puts(24)
    as_before()


def it_hides_a_job(story: Story) -> None:
    story.adopts(21)
    as_before = back(story, 48)
    story.adopts(23)
    as_before()


def it_fills_what_was_deleted(story: Story) -> None:
    story.adopts(22)
    as_before = back(story, 51)
    story.adopts(23)
    story.looks()
    as_before()


def it_fills_what_was_cleared(story: Story) -> None:
    story.adopts(8)
    said(story, 8)
    for key in (b"own/0", b"own/1", b"own/2"):
        story.rows[key + b"/22/0"] = b"job 22 0 1000 1 ..."
    for cell in (48, 50, 51):
        story.rows[planned.key_of(cell)] = b"job 22 0 1000 1 ..."


def a_later_one_counts(story: Story) -> None:
    story.adopts(21)
    story.looks()
    before = dict(story.rows)
    story.had.clear()
    story.adopts(22)
    story.rows = story.rows | {k: v for k, v in before.items() if k != planned.key_of(48)}


def they_count_in_no_order(story: Story) -> None:
    for number, seq in ((21, 5), (22, 6)):
        story.adopts(number)
        story.says(number, "adopted", seq)


def one_fills_what_an_earlier_one_deletes(story: Story) -> None:
    for number in (21, 22):
        story.adopts(number)
        story.looks()
    story.rows[planned.key_of(50)] = story.rows[planned.key_of(51)]


def it_fills_later_than_it_ended(story: Story) -> None:
    """The other job came both after that and before it."""
    story.says(21, "forgotten", how="status")
    story.puts(24)
    story.told.behind[22] = 24
    for number in (22, 21):
        story.adopts(number)
        story.looks()


@pytest.mark.parametrize(
    "happens",
    [
        a_delete_is_lost,
        a_deleted_row_comes_back,
        a_row_of_a_job_comes_back,
        more_is_gone,
        a_later_put_is_gone,
        a_later_row_is_gone,
        an_earlier_part_wins,
        a_later_part_is_lost,
        a_deleter_comes_twice,
        deleters_come_twice,
        a_delete_in_a_zone_is_lost,
        nothing_is_cleared,
        half_is_cleared,
        more_is_cleared,
        no_job_clears,
        a_cleared_row_comes_back,
        a_clear_is_lost,
        a_clear_comes_twice,
        a_clear_comes_twice_against_its_number,
        a_clear_is_at_two_places,
        a_later_put_is_cleared,
        a_later_job_is_cleared,
        a_job_comes_behind_its_clear,
        a_job_outlives_its_clear,
        a_job_is_lost_and_only_its_cells_were_cleared,
        no_job_asked_to_clear,
        a_clear_was_aborted,
        a_filling_row_is_lost,
        it_is_seen_and_lost,
        half_of_it_comes,
        it_fills_nothing,
        it_hides_a_put,
        it_hides_a_job,
        it_fills_what_was_deleted,
        it_fills_what_was_cleared,
        a_later_one_counts,
        they_count_in_no_order,
        one_fills_what_an_earlier_one_deletes,
        it_fills_later_than_it_ended,
    ],
)
def test_impossible_histories_are_found(happens: Callable[[Story], None]) -> None:
    story = Story(*ALL)
    happens(story)
    assert story.wrong()


# --- Possible histories ---------------------------------------------------------------------------


def test_deleted_rows_may_be_covered_later() -> None:
    story = Story(*ALL)
    story.puts(24)
    for number in (1, 3, 2):
        story.adopts(number)
        story.looks()
    story.puts(24)
    assert story.wrong() == []


def test_a_job_that_replaced_a_zone_may_be_cleared() -> None:
    story = Story(*ALL)
    story.puts(24)
    story.adopts(4)
    story.says(4, "adopted", 80)
    story.adopts(5)
    story.puts()
    story.looks()
    story.adopts(6)
    for number, seq in ((5, 81), (6, 90)):
        said(story, number, seq)
    assert story.wrong() == []


def test_filling_rows_come_behind_all_others() -> None:
    story = Story(*ALL)
    for number in (22, 21, 23):
        story.adopts(number)
        story.looks()
    story.adopts(8)
    said(story, 8)
    assert story.rows[planned.key_of(2)].startswith(b"job 21 0")
    assert story.wrong() == []


def test_plans_travel_as_plain_values() -> None:
    for plan in ALL:
        assert Plan.of_plain(plan.to_plain()) == plan
