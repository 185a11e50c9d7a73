"""Processes that work with ingest jobs killed at random moments, while all of them work on one
database; and the judge, checked with possible and impossible histories.

``SILTSTONE_KILLS`` sets the number of kills (100 by default).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import jobs_planned_for_tests as planned
import kill_runs_for_tests as kill_runs
from jobs_planned_for_tests import Look, Plan, look_of
from stories_of_jobs_for_tests import Story, any_plan

KILLS = int(os.environ.get("SILTSTONE_KILLS", "100"))
ROLES = {"writer", "builder", "submitter", "compactor", "collector", "reader"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_kills_of_every_role_leave_each_job_there_once_or_not_at_all(tmp_path: Path) -> None:
    killed = kill_runs.killed("kills_of_jobs_for_tests.py", tmp_path, KILLS)
    assert sum(map(int, killed.values())) >= KILLS
    assert set(killed) == ROLES
    assert "0" not in killed.values()


@pytest.mark.parametrize("seed", range(40))
def test_all_possible_histories_are_accepted(seed: int) -> None:
    draw = random.Random(seed)
    story = Story(*(any_plan(draw, number) for number in range(1, 30)))
    seq, low, seqs, clears = 1 << 40, 1 << 40, [], dict[int, int]()
    for number in story.plans:
        story.told.behind[number] = draw.randrange(story.batch + 1)
        if draw.random() < 0.2:
            story.says(number, "aborted", how="abort")
            continue
        story.adopts(number)
        plan = story.plans[number]
        seq, low = (seq, low - 1) if plan.fills else (seq + 1, low)
        clears |= {number: seq} if plan.span else {}
        if draw.random() < 0.5:
            story.says(number, "adopted", low if plan.fills else seq)
        elif draw.random() < 0.5:
            story.says(number, draw.choice(["pending", "forgotten"]))
        story.may_look(draw, 0.5)
        for _ in range(draw.choice([0, 0, 1, 5, 60])):
            story.puts()
            seq += 3
            if draw.random() < 0.5:
                seqs.append((seq, story.batch))
                story.told.acknowledged = story.batch
            story.may_look(draw, 0.1)
    for number, at in clears.items():
        story.says(number, "adopted", at, how="status")
    story.told.seqs = seqs
    draw.shuffle(story.told.looks)
    assert story.wrong() == []


ONE, OTHER = Plan(1, ((1, 3), (5, 7))), Plan(2, ((3, 9),))
ZONED, AGAIN = Plan(3, ((0, 1),), zone=0), Plan(4, ((4,),), zone=0)
FIRST, SAME, LATER = (Plan(n, ((13,),), txn=("a", v)) for n, v in ((5, 7), (6, 7), (7, 8)))


def lost(story: Story) -> None:
    story.puts(9)
    story.says(1, "pending")


def seen_and_lost(story: Story) -> None:
    story.adopts(1)
    story.looks()
    story.rows.clear()


def lost_below_another(story: Story) -> None:
    """The job that replaced its zone may hide it, but it cannot be above that job."""
    story.adopts(4)
    story.puts(24)
    story.told.seqs = [(72, 24)]
    story.says(4, "adopted", 1)
    story.told.behind[3] = 24
    story.says(3, "adopted", 73)


def twice_with_a_look(story: Story) -> None:
    story.adopts(1)
    story.puts(17)
    story.looks()
    story.puts(400)
    story.looks()
    story.adopts(1)


def twice_with_an_answer(story: Story) -> None:
    story.puts(16)
    story.adopts(1)
    story.says(1, "adopted", 60)
    story.puts(400)
    story.adopts(1)


def twice_above_another(story: Story) -> None:
    for number in (1, 2, 1):
        story.adopts(number)
        story.looks()


def twice_in_a_zone(story: Story) -> None:
    for number in (3, 4, 3):
        story.adopts(number)
        story.puts()
        story.looks()


def at_two_places(story: Story) -> None:
    story.adopts(1)
    story.says(1, "adopted", 5)
    story.says(1, "adopted", 6, how="status")


def against_the_numbers(story: Story) -> None:
    for number, seq in ((1, 8), (2, 7)):
        story.adopts(number)
        story.says(number, "adopted", seq)


def against_a_number_of_a_put(story: Story) -> None:
    story.adopts(1)
    story.puts(16)
    story.told.seqs = [(48, 16)]
    story.says(1, "adopted", 49)


def half(story: Story) -> None:
    story.adopts(1)
    del story.rows[b"own/2/1/1"]


def half_of_another_task(story: Story) -> None:
    story.adopts(1)
    story.rows[b"own/2/1/1"] = b"job 1 1 1234 2 ..."


def half_of_a_part(story: Story) -> None:
    story.adopts(1)
    del story.rows[planned.key_of(5)]


def only_cells(story: Story) -> None:
    story.rows |= {planned.key_of(1): b"job 1 0 1000 2 ..."}


def the_wrong_part(story: Story) -> None:
    story.plans[1] = Plan(1, ((1, 3), (3,)))
    story.adopts(1)
    story.rows |= {planned.key_of(3): b"job 1 0 1000 2 ..."}


def two_orders(story: Story) -> None:
    story.adopts(1)
    story.looks()
    story.rows.clear()
    story.adopts(2)
    story.looks()
    story.adopts(1)


def no_process_asked(story: Story) -> None:
    del story.told.behind[1]
    story.adopts(1)


def asked_for_later(story: Story) -> None:
    story.puts(16)
    story.adopts(1)
    story.puts(400)
    story.told.behind[1] = 399


def aborted(story: Story) -> None:
    story.says(1, "aborted", how="abort")
    story.adopts(1)


def refused(story: Story) -> None:
    story.says(1, "refused")


def version_twice(story: Story) -> None:
    story.adopts(5)
    story.adopts(6)


def version_lost(story: Story) -> None:
    story.says(5, "pending")


def versions_in_no_order(story: Story) -> None:
    story.adopts(7)
    story.looks()
    story.adopts(5)


def put_lost(story: Story) -> None:
    story.puts(9)
    story.told.acknowledged = 10


def put_lost_to_a_reader(story: Story) -> None:
    story.puts(9)
    story.told.looks.append(look_of(story.rows, least=10))
    story.puts(9)


def put_lost_below(story: Story) -> None:
    story.puts(24)
    before = story.rows[planned.key_of(0)]
    story.puts(24)
    story.rows[planned.key_of(0)] = before


def put_gone(story: Story) -> None:
    story.puts(24)
    del story.rows[planned.key_of(2)]


def not_cleared(story: Story) -> None:
    story.puts(24)
    story.adopts(3, clears=False)


def cleared_later(story: Story) -> None:
    """A put behind the job that replaced its zone is cleared with it."""
    story.puts(3)
    story.says(3, "adopted", 10)
    story.puts(24)
    story.adopts(3)


def neither(story: Story) -> None:
    """The earlier content is gone, and the replacing content is missing."""
    story.puts(24)
    story.adopts(3)
    story.rows = {key: row for key, row in story.rows.items() if b"job" not in row}


@pytest.mark.parametrize(
    "happens",
    [
        lost,
        seen_and_lost,
        lost_below_another,
        twice_with_a_look,
        twice_with_an_answer,
        twice_above_another,
        twice_in_a_zone,
        at_two_places,
        against_the_numbers,
        against_a_number_of_a_put,
        half,
        half_of_another_task,
        half_of_a_part,
        only_cells,
        the_wrong_part,
        two_orders,
        no_process_asked,
        asked_for_later,
        aborted,
        refused,
        version_twice,
        version_lost,
        versions_in_no_order,
        put_lost,
        put_lost_to_a_reader,
        put_lost_below,
        put_gone,
        not_cleared,
        cleared_later,
        neither,
    ],
)
def test_impossible_histories_are_found(happens: Callable[[Story], None]) -> None:
    story = Story(ONE, OTHER, ZONED, AGAIN, FIRST, SAME, LATER)
    happens(story)
    assert story.wrong()


def test_a_version_is_whose_job_brought_it() -> None:
    story = Story(FIRST, SAME, LATER)
    story.says(6, "adopted", 1)
    story.adopts(5)
    story.says(5, "adopted", 1)
    story.adopts(7)
    assert story.wrong() == []


def test_looks_and_plans_travel_as_plain_values() -> None:
    story = Story(ONE, ZONED, FIRST)
    story.puts(3)
    for plan in story.plans.values():
        story.adopts(plan.number)
        assert Plan.of_plain(plan.to_plain()) == plan
    look = story.looks()
    assert Look.of_plain(look.to_plain()) == look
    assert look.jobs == {1, 3, 5}


def test_the_last_put_of_a_cell_is_the_last_that_puts_it() -> None:
    last = dict.fromkeys(range(planned.PUT), 0)
    for batch in range(1, 1200):
        last |= dict.fromkeys(planned.cells_put(batch), batch)
        assert all(planned.last_put(cell, batch) == last[cell] for cell in last)
    assert all(last.values())
    assert planned.last_put(planned.PUT, 1200) == 0
