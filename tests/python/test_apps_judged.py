"""The judge of killed jobs, checked with histories of applications that are forgotten while their
jobs come and go. It must accept each possible history and find each impossible one.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from jobs_planned_for_tests import Plan
from stories_of_jobs_for_tests import Story

ANY = Plan(1, ((2, 4),))
# Versions of one application.
ONE, TWO, SAME, THREE = (Plan(n, ((13,),), txn=("a", v)) for n, v in enumerate((1, 2, 2, 3), 11))


def lived(story: Story, number: int, seq: int | None = None) -> None:
    """The job begins, is asked for, is taken in, and is seen."""
    story.begins(number)
    story.asks(number)
    story.adopts(number)
    story.says(number, "adopted", seq, how="status")
    story.looks()


def a_version_comes_twice_in_the_next_life(story: Story) -> None:
    lived(story, 11)
    story.forgets("a")
    lived(story, 12)
    lived(story, 13)


def a_version_comes_twice_before_the_life_ends(story: Story) -> None:
    story.begins(12, 13)
    story.asks(12, 13)
    story.adopts(12)
    story.adopts(13)
    story.forgets("a")


def another_application_is_forgotten(story: Story) -> None:
    lived(story, 12)
    story.forgets("b")
    lived(story, 13)


def versions_descend_in_a_life(story: Story) -> None:
    story.forgets("a")
    lived(story, 14)
    lived(story, 12)


def a_job_of_an_earlier_life_comes(story: Story) -> None:
    story.begins(14)
    lived(story, 11)
    story.forgets("a")
    story.asks(14)
    story.adopts(14)


def it_comes_into_a_later_life(story: Story) -> None:
    story.begins(14)
    lived(story, 11)
    story.forgets("a")
    lived(story, 12)
    story.asks(14)
    story.adopts(14)


def it_came_again_into_a_later_life(story: Story) -> None:
    lived(story, 11)
    story.puts(100)
    story.looks()
    story.forgets("a")
    story.adopts(11)


def it_is_answered_with_a_job_of_a_later_life(story: Story) -> None:
    story.begins(13)
    lived(story, 11)
    story.forgets("a")
    lived(story, 12, 9)
    story.asks(13)
    story.says(13, "adopted", 9)


def it_is_answered_with_a_job_of_an_earlier_life(story: Story) -> None:
    lived(story, 12, 9)
    story.forgets("a")
    story.begins(13)
    story.asks(13)
    story.says(13, "adopted", 9)


def it_is_denied_though_no_app_was_forgotten(story: Story) -> None:
    story.forgets("a")
    story.begins(11)
    story.asks(11)
    story.says(11, "denied")


def it_is_denied_and_comes(story: Story) -> None:
    story.begins(11)
    story.forgets("a")
    story.asks(11)
    story.says(11, "denied")
    story.puts(24)
    story.told.behind[11] = 24
    story.adopts(11)


def it_is_forgotten_and_comes(story: Story) -> None:
    story.says(1, "forgotten", how="status")
    story.puts(24)
    story.looks()
    story.adopts(1)


def it_is_forgotten_while_a_job_waits(story: Story) -> None:
    story.begins(11)
    story.asks(11)
    story.says(11, "pending", how="abort")
    story.forgets("a")
    story.says(11, "pending", how="abort")
    story.adopts(11)


def a_pending_job_is_lost(story: Story) -> None:
    """Another pending job of the same version does not replace it."""
    lived(story, 12)
    story.says(13, "pending", how="abort")


@pytest.mark.parametrize(
    "happens",
    [
        a_version_comes_twice_in_the_next_life,
        a_version_comes_twice_before_the_life_ends,
        another_application_is_forgotten,
        versions_descend_in_a_life,
        a_job_of_an_earlier_life_comes,
        it_comes_into_a_later_life,
        it_came_again_into_a_later_life,
        it_is_answered_with_a_job_of_a_later_life,
        it_is_answered_with_a_job_of_an_earlier_life,
        it_is_denied_though_no_app_was_forgotten,
        it_is_denied_and_comes,
        it_is_forgotten_and_comes,
        it_is_forgotten_while_a_job_waits,
        a_pending_job_is_lost,
    ],
)
def test_impossible_histories_are_found(happens: Callable[[Story], None]) -> None:
    story = Story(ANY, ONE, TWO, SAME, THREE)
    happens(story)
    assert story.wrong()


def test_a_version_comes_once_a_life() -> None:
    story = Story(ONE, TWO, SAME, THREE)
    for number in (11, 12, 14):
        lived(story, number)
    story.forgets("a", sure=False)
    story.puts(24)
    lived(story, 13)
    assert story.wrong() == []


def test_a_job_of_an_earlier_life_is_known_in_the_next() -> None:
    """This holds for the last job of a life until its deadline, and for a request with a version of
    this life."""
    story = Story(ONE, TWO, SAME, THREE)
    lived(story, 12, 5)
    story.forgets("a")
    story.says(12, "adopted", 5, how="status")
    story.says(12, "denied")
    lived(story, 11, 9)
    lived(story, 14, 12)
    story.says(11, "forgotten", how="status")
    assert story.wrong() == []


def test_a_job_that_forgets_nothing_ends_no_life() -> None:
    """No job of the application had been taken in: a job that began before may be taken in
    after."""
    story = Story(ONE, TWO, SAME, THREE)
    story.begins(11)
    story.forgets("a")
    story.asks(11)
    story.adopts(11)
    story.says(11, "adopted", 4)
    assert story.wrong() == []


def test_a_killed_process_may_have_forgotten_nothing() -> None:
    story = Story(ONE, TWO, SAME, THREE)
    story.begins(14)
    lived(story, 11)
    story.forgets("a", sure=False)
    story.asks(14)
    story.adopts(14)
    story.says(14, "adopted", 4)
    assert story.wrong() == []


@pytest.mark.parametrize("seed", range(20))
def test_all_possible_lives_are_accepted(seed: int) -> None:
    """Jobs of two applications begin, are asked for later, and are refused as the rules require."""
    draw = random.Random(seed)
    plans = [
        Plan(n, ((draw.randrange(48),),), txn=(draw.choice("ab"), draw.randrange(1, 5)))
        for n in range(1, 60)
    ]
    story = Story(*plans)
    ended, last, begun = {"a": 0, "b": 0}, {"a": 0, "b": 0}, dict[int, int]()
    for _ in range(200):
        number = draw.choice(plans).number
        app, version = plans[number - 1].txn or ("", 0)
        if draw.random() < 0.1:
            story.forgets(app, sure=draw.random() < 0.7)
            if last[app]:
                ended[app], last[app] = ended[app] + 1, 0
        elif number not in begun:
            story.begins(number)
            begun[number] = ended[app]
        elif begun[number] < ended[app]:
            story.asks(number)
            story.says(number, "denied")
        elif version > last[app]:
            story.asks(number)
            story.adopts(number)
            last[app] = version
            story.says(number, "adopted", how=draw.choice(["submit", "status"]))
        elif version == last[app]:
            story.asks(number)
            story.says(number, "adopted")
        story.puts(draw.choice([0, 1, 5]))
        if draw.random() < 0.3:
            story.looks()
    assert story.wrong() == []
