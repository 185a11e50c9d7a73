"""The cut keys of a scan for tasks that read in parallel."""

from __future__ import annotations

import bisect
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import siltstone
from siltstone.spark._bounds import bounds
from siltstone.spark._ranges import cuts, ranges
from siltstone.spark._scan import split

KEYS = st.lists(st.binary(min_size=1, max_size=12), min_size=1, max_size=60, unique=True)


@given(KEYS.map(sorted), st.integers(1, 9))
def test_cuts_are_within_and_ascend(keys: list[bytes], parts: int) -> None:
    found = cuts(lambda key: bisect.bisect_left(keys, key), keys[0], keys[-1], parts)
    assert len(found) < parts
    assert all(keys[0] < cut <= keys[-1] for cut in found)
    assert all(a < b for a, b in itertools.pairwise(found))


@given(KEYS.map(sorted), st.integers(1, 9), st.none() | st.binary(), st.none() | st.binary())
def test_ranges_are_all_and_share_nothing(keys, parts, start, end) -> None:
    held = [key for key in keys if (start or b"") <= key and (end is None or key < end)]
    if not held:
        return
    found = cuts(lambda key: bisect.bisect_left(held, key), held[0], held[-1], parts)
    pieces = ranges(found, start, end)
    counted = [
        sum((low or b"") <= key and (high is None or key < high) for low, high in pieces)
        for key in keys
    ]
    assert counted == [int(key in held) for key in keys]


def test_evenly_spread_keys_are_cut_evenly() -> None:
    keys = [b"row/%08d" % number for number in range(100_000)]
    for parts in (2, 7, 64):
        found = cuts(lambda key: bisect.bisect_left(keys, key), keys[0], keys[-1], parts)
        sizes = [
            bisect.bisect_left(keys, high or b"s") - bisect.bisect_left(keys, low or b"")
            for low, high in ranges(found, None, None)
        ]
        assert len(sizes) == parts
        assert max(sizes) < 1.2 * len(keys) / parts


@given(st.binary(max_size=4), st.binary(max_size=5))
def test_a_prefix_is_its_range(prefix: bytes, key: bytes) -> None:
    start, end = bounds(None, None, prefix)
    assert ((start or b"") <= key and (end is None or key < end)) == key.startswith(prefix)


def test_a_prefix_beside_a_bound_is_refused() -> None:
    assert bounds(b"a", None, None) == (b"a", None)
    with pytest.raises(siltstone.Invalid, match="exclude each other"):
        bounds(b"a", None, b"b")


def test_a_database_is_cut_by_what_it_holds(url: str) -> None:
    with siltstone.open(url) as db:
        for first in range(0, 200, 50):
            rows = [b"%06d" % row for row in range(first * 1000, (first + 50) * 1000, 10)]
            db.put_many(rows, [b"v" * 100] * len(rows))
        db.flush(memtable=True)
        pieces = split_of(url, 4)
        counts = [sum(1 for _ in db.keys(low, high)) for low, high in pieces]
        assert sum(counts) == 20_000
        assert len(counts) == 4
        assert max(counts) < 6_500
    assert split_of(url, lambda: 1) == [(None, None)]


def split_of(url: str, parts):
    with siltstone.open_reader(url) as reader:
        return split(reader, None, None, parts)


def test_nothing_is_one_range(url: str) -> None:
    siltstone.open(url).close()
    assert split_of(url, 8) == [(None, None)]
