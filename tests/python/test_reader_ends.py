"""A following reader raises an error if it cannot continue, and reports the age of its state."""

import itertools
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

import siltstone
from pace_for_tests import PATIENCE, quickest, until

_FOLLOWING = {"manifest_poll_interval": 0.05}


def test_a_hole_in_the_log_ends_a_follower_with_its_reason(tmp_path: Path) -> None:
    place = tmp_path / "db"
    with siltstone.open(place, options={"flush_interval": 0.001}) as db:
        db.put(b"n", b"0").wait()
        with siltstone.open_reader(place, options=_FOLLOWING) as follower:
            with pytest.raises(siltstone.Corruption, match="wal/"):
                for turn in itertools.count(1):
                    before = set((place / "wal").iterdir())
                    db.put(b"n", b"lost %d" % turn).wait()
                    for file in set((place / "wal").iterdir()) - before:
                        file.unlink()
                    last = b"%d" % turn
                    db.put(b"n", last).wait()
                    # If the follower comes to this value, it had read the object in time.
                    until(lambda last=last: follower.get(b"n") == last)
            stats = follower.stats()
            assert "wal/" in stats.ended
            assert "wal/" in stats.refresh_error
            assert stats.refresh_failures >= 2
            with pytest.raises(siltstone.Corruption):
                follower.refresh()


def test_a_database_that_is_destroyed_ends_a_follower(tmp_path: Path) -> None:
    place = tmp_path / "db"
    siltstone.open(place).close()
    with siltstone.open_reader(place, options=_FOLLOWING) as follower:
        siltstone.destroy(place)
        with pytest.raises(siltstone.NotFound):
            until(lambda: follower.get(b"n"))


def test_a_follower_tells_how_old_its_state_is(tmp_path: Path) -> None:
    place = tmp_path / "db"
    with siltstone.open(place) as db:
        assert (db.stats().staleness_seconds, db.stats().ended) == (0, None)
        with siltstone.open_reader(place, options={"manifest_poll_interval": 60}) as follower:
            time.sleep(0.2)
            stats = follower.stats()
            assert 0.2 <= stats.staleness_seconds < PATIENCE
            assert abs(stats.last_refresh_time - datetime.now(UTC).timestamp()) < PATIENCE
            assert (stats.refresh_error, stats.refresh_failures, stats.ended) == (None, 0, None)

            def refreshed() -> float:
                follower.refresh()
                return follower.stats().staleness_seconds

            quickest(refreshed, stats.staleness_seconds)
