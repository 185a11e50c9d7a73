"""`warm`: a range is in the block cache before its first use."""

from __future__ import annotations

import asyncio
import os

import pytest

import siltstone
import siltstone.aio
from overwriting_s3_for_tests import OverwritingS3

ROWS = 20_000


@pytest.fixture(scope="module")
def place():
    with OverwritingS3() as store:
        options = {**store.options, "transactional_store": "memory://warm"}
        with siltstone.open("s3://bucket/db", store_options=options) as db:
            for row in range(ROWS):
                db.put(b"%06d" % row, os.urandom(100))
            db.flush()
            db.compact()
        yield "s3://bucket/db", options


def gets(reader: siltstone.Reader) -> int:
    return reader.stats().get_requests


def test_a_warm_range_costs_no_request(place) -> None:
    url, options = place
    # A reader that looks for newer data meanwhile would send requests, too.
    still = {"reader_lease": False, "manifest_poll_interval": 3600}
    with siltstone.open_reader(url, options=still, store_options=options) as reader:
        read = reader.warm(b"005000", b"010000")
        assert read == 5000 * 106
        before = gets(reader)
        for row in range(5000, 10_000, 50):
            assert len(reader[b"%06d" % row]) == 100
        assert gets(reader) == before
        # Outside of it blocks are fetched.
        assert len(reader[b"019999"]) == 100
        assert gets(reader) > before
        assert reader.warm(prefix=b"0100") == 100 * 106


def test_warming_ends_when_the_cache_is_full(place) -> None:
    url, options = place
    small = {"block_cache_bytes": "2MiB"}
    with siltstone.open_reader(url, store_options=options, options=small) as reader:
        assert 0 < reader.warm() < ROWS * 106


def test_snapshots_and_writers_warm_too(place) -> None:
    url, options = place
    with siltstone.open(url, store_options=options) as db, db.snapshot() as snapshot:
        assert snapshot.warm(b"000000", b"000010") == 1060
        before = db.stats().get_requests
        assert len(db[b"000005"]) == 100
        assert db.stats().get_requests == before
        with pytest.raises(siltstone.Invalid):
            db.warm(b"a", prefix=b"b")


def test_the_same_with_asyncio(place) -> None:
    url, options = place

    async def run() -> int:
        async with await siltstone.aio.open_reader(url, store_options=options) as reader:
            return await reader.warm(b"000000", b"001000")

    assert asyncio.run(run()) == 1000 * 106
