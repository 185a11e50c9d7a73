"""Random operations compared with a dict, through every kind of read."""

from __future__ import annotations

import uuid

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import siltstone

KEYS = st.one_of(
    st.sampled_from([b"a", b"aa", b"ab", b"b", b"\x00", b"\xff", b"\xff\xff"]),
    st.binary(min_size=1, max_size=3),
)
VALUES = st.one_of(st.binary(max_size=8), st.just(b"v" * 300))
BOUNDS = st.none() | st.binary(max_size=3)

# Sizes so small that a few operations cross every boundary: memtable, block, table.
OPTIONS = [
    {"l0_sst_size_bytes": 1024, "block_bytes": 64, "flush_interval": 0},
    {"l0_sst_size_bytes": 1024, "block_bytes": 64, "block_cache_bytes": 0, "compression": "zstd"},
    {"filter_bits_per_key": 0, "max_parallel_writes": 1, "flush_interval": 3600},
]


class Model(RuleBasedStateMachine):
    """One writer, and a dict with its expected contents."""

    @initialize(options=st.sampled_from(OPTIONS))
    def open(self, options: dict) -> None:
        self.url = f"memory://{uuid.uuid4().hex}"
        self.options = options
        self.db = siltstone.open(self.url, options=options, merge_operator="append")
        self.model: dict[bytes, bytes] = {}
        self.snapshot: siltstone.Snapshot | None = None
        self.then: dict[bytes, bytes] = {}

    @rule(key=KEYS, value=VALUES)
    def put(self, key: bytes, value: bytes) -> None:
        self.db.put(key, value)
        self.model[key] = value

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        del self.db[key]
        self.model.pop(key, None)

    @rule(key=KEYS, operand=VALUES)
    def merge(self, key: bytes, operand: bytes) -> None:
        self.db.merge(key, operand)
        self.model[key] = self.model.get(key, b"") + operand

    @rule(bounds=st.lists(KEYS, min_size=2, max_size=2, unique=True), again=st.none() | VALUES)
    def delete_range(self, bounds: list[bytes], again: bytes | None) -> None:
        start, end = sorted(bounds)
        with self.db.batch() as batch:
            batch.delete_range(start, end)
            if again is not None:
                batch.put(start, again)
        for key in [key for key in self.model if start <= key < end]:
            del self.model[key]
        if again is not None:
            self.model[start] = again

    @rule(rows=st.lists(st.tuples(KEYS, VALUES), max_size=5))
    def put_for_an_hour(self, rows: list[tuple[bytes, bytes]]) -> None:
        self.db.put_many([key for key, _ in rows], [value for _, value in rows], ttl=3600)
        self.model.update(rows)

    @rule()
    def compact(self) -> None:
        self.db.compact()

    @rule(rows=st.lists(st.tuples(KEYS, VALUES), max_size=30), arrow=st.booleans())
    def put_many(self, rows: list[tuple[bytes, bytes]], arrow: bool) -> None:
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        if arrow:
            self.db.put_many(pa.array(keys, pa.binary()), pa.array(values, pa.large_binary()))
        else:
            self.db.put_many(keys, values)
        self.model.update(rows)

    @rule(rows=st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=5), fails=st.booleans())
    def batch(self, rows: list[tuple[bytes, bytes | None]], fails: bool) -> None:
        try:
            with self.db.batch() as batch:
                for key, value in rows:
                    if value is None:
                        batch.delete(key)
                    else:
                        batch.put(key, value)
                if fails:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            return
        for key, value in rows:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = value

    @rule(keys=st.lists(KEYS, max_size=40), arrow=st.booleans())
    def get(self, keys: list[bytes], arrow: bool) -> None:
        expected = [self.model.get(key) for key in keys]
        assert [self.db.get(key) for key in keys] == expected
        if arrow:
            assert self.db.get_many(pa.array(keys, pa.binary())).to_pylist() == expected
        else:
            assert self.db.get_many(keys) == expected
        for key in keys:
            assert (key in self.db) == (key in self.model)

    @rule(
        start=BOUNDS,
        end=BOUNDS,
        reverse=st.booleans(),
        limit=st.none() | st.integers(0, 20),
        batch_rows=st.integers(1, 10),
    )
    def scan(self, start, end, reverse, limit, batch_rows) -> None:
        inside = [
            (key, value)
            for key, value in sorted(self.model.items(), reverse=reverse)
            if (start is None or start <= key) and (end is None or key < end)
        ][:limit]
        named = {"reverse": reverse, "limit": limit}
        assert list(self.db.scan(start, end, **named)) == inside
        table = pa.table(self.db.scan(start, end, **named).to_arrow(batch_rows))
        assert (
            list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == inside
        )

    @rule(prefix=st.binary(max_size=2))
    def prefix(self, prefix: bytes) -> None:
        inside = sorted(key for key in self.model if key.startswith(prefix))
        assert list(self.db.keys(prefix=prefix)) == inside

    @rule()
    def take_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()
        self.snapshot, self.then = self.db.snapshot(), dict(self.model)

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def read_snapshot(self) -> None:
        assert dict(self.snapshot) == self.then
        assert list(self.snapshot.items(reverse=True)) == sorted(self.then.items(), reverse=True)

    @rule()
    def read_elsewhere(self) -> None:
        self.db.flush()
        with siltstone.open_reader(self.url, options=self.options) as reader:
            assert dict(reader) == self.model

    @rule(clean=st.booleans())
    def open_again(self, clean: bool) -> None:
        if clean:
            self.db.close()
            self.db = siltstone.open(self.url, take_over=False, options=self.options)
        else:
            self.db.flush()
            old = self.db
            self.db = siltstone.open(self.url, take_over=True, options=self.options)
            try:
                old.close()
                raise AssertionError("a fenced writer closed as if nothing had happened")
            except siltstone.Fenced:
                pass

    @invariant()
    def everything_is_there(self) -> None:
        assert list(self.db.items()) == sorted(self.model.items())

    def teardown(self) -> None:
        if self.snapshot is not None:
            assert dict(self.snapshot) == self.then
        self.db.close()
        if self.snapshot is not None:
            assert dict(self.snapshot) == self.then


TestModel = Model.TestCase
TestModel.settings = settings(
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
