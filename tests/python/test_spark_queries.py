"""Random queries by each way to narrow a read, compared with Parquet files of the same rows.

Many queries run in one job: each is a branch of a union with its own number. The parts of a query
that the package narrows by (`where`, `start`, `end`, `columns`) are written as a filter for
Parquet. `SILTSTONE_SPARK_QUERIES` sets the number of queries; `make soak` runs 2,000.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest

import siltstone.spark as kv
from siltstone import admin
from spark_versions_for_tests import SOURCES

pytest_plugins = ["spark_for_tests"]
pytestmark = pytest.mark.slow

QUERIES = int(os.environ.get("SILTSTONE_SPARK_QUERIES", "10"))
AT_ONCE = 20
"""Queries in one job."""
ROWS = 400
LANDS = ["AT", "BE", "DE", "FR", None]
COLUMNS = ["land", "day", "id", "note"]
KEY = ["land", "day", "id"]


@pytest.fixture(scope="module")
def places(spark, tmp_path_factory) -> tuple[str, Any, Any]:
    """A table, a frame of Parquet files with the same rows, and a checkpoint of the table."""
    folder = tmp_path_factory.mktemp("queries")
    chosen = random.Random(5)
    rows = [
        (
            chosen.choice(LANDS),
            chosen.choice([*range(-3, 6), None]),
            number,
            chosen.choice(["a", "ab", "b", "", None]),
        )
        for number in range(ROWS)
    ]
    frame = spark.createDataFrame(rows, "land string, day int, id long, note string")
    url, path = str(folder / "table"), str(folder / "parquet")
    kv.bulk_load(frame, url, key=KEY, layout="runs")
    frame.coalesce(1).write.parquet(path)
    return url, spark.read.parquet(path), admin.create_checkpoint(url, lifetime=3600)


@dataclass
class Query:
    """A read that is narrowed, and a filter of Spark over it."""

    narrowed: dict[str, Any] = field(default_factory=dict)
    """Arguments of `scan`."""
    same: list[str] = field(default_factory=list)
    """The same as conditions of SQL."""
    filters: list[str] = field(default_factory=list)
    way: str = "scan"
    shape: str = "plain"


def literal(value: object) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def query(chosen: random.Random) -> Query:
    made = Query(way=chosen.choice(["scan", "view", "scan", "view", "format"]))
    if made.way != "format" and chosen.random() < 0.7:
        equal: dict[str, Any] = {"land": chosen.choice(LANDS)}
        if chosen.random() < 0.4:
            equal["day"] = chosen.choice([*range(-4, 7), None])
        made.narrowed["where"] = equal
        made.same += [f"{name} <=> {literal(value)}" for name, value in equal.items()]
        if len(equal) == 1 and chosen.random() < 0.5:
            low, high = sorted(chosen.sample(range(-4, 8), 2))
            made.narrowed |= {"start": low, "end": high}
            made.same.append(f"day >= {low} AND day < {high}")
    else:
        ends = {name: chosen.choice(["AT", "B", "DE", "E", "FR", "Z"]) for name in ("start", "end")}
        for name in chosen.sample(["start", "end"], chosen.randint(0, 2)):
            made.narrowed[name] = ends[name]
            # In the order of the key nulls are first.
            bound = "land >= {}" if name == "start" else "(land < {} OR land IS NULL)"
            made.same.append(bound.format(literal(ends[name])))
    filters = [
        f"land IN ({literal(chosen.choice(LANDS[:4]))}, 'FR')",
        "land IS NULL",
        "note IS NOT NULL",
        "note LIKE 'a%'",
        f"day > {chosen.randint(-3, 5)}",
        f"NOT day <=> {chosen.choice(['NULL', '2'])}",
        f"id % 7 = {chosen.randint(0, 6)} OR land = 'DE'",
    ]
    made.filters = chosen.sample(filters, chosen.randint(0, 2))
    made.shape = chosen.choice(["plain", "plain", "union", "join", "reused"])
    return made


def frame_of(spark, made: Query, url: str, checkpoint: Any, number: int):
    if made.way == "format":
        options = {"checkpoint": checkpoint.id.hex, "numPartitions": "1", **made.narrowed}
        return spark.read.format("siltstone").options(**options).load(url)
    named = {"checkpoint": checkpoint, "partitions": 1, **made.narrowed}
    if made.way == "scan":
        return kv.scan(spark, url, **named)
    kv.view(spark, f"queried_{number}", url, columns=COLUMNS, **named)
    return spark.table(f"queried_{number}")


def answer_of(made: Query, frame, number: int):
    """The rows of a query, as text, with its number."""
    filtered = reduce(lambda rows, text: rows.where(text), made.filters, frame)
    if made.shape == "union":
        filtered = filtered.select(*COLUMNS).union(frame.select(*COLUMNS))
    elif made.shape == "join":
        other = frame.where("id % 2 = 0").selectExpr("id AS other")
        filtered = filtered.join(other, filtered.id == other.other, "left_semi")
    elif made.shape == "reused":
        # The second filter must not narrow what the first one reads.
        first, second = frame.where("day > 0"), frame.where("day <= 0")
        filtered = first.select(*COLUMNS).union(second.select(*COLUMNS))
    return filtered.selectExpr(
        f"{number} AS query", f"to_json(struct({', '.join(COLUMNS)})) AS row"
    )


def compared(spark, places, first: int, count: int) -> None:
    url, parquet, checkpoint = places
    chosen = random.Random(first)
    made = [query(chosen) for _ in range(count)]
    ours, theirs = [], []
    for number, one in enumerate(made):
        ours.append(answer_of(one, frame_of(spark, one, url, checkpoint, number), number))
        plain = reduce(lambda rows, text: rows.where(text), one.same, parquet)
        theirs.append(answer_of(one, plain, number))
    found, expected = (
        Counter(row[:] for row in reduce(lambda a, b: a.union(b), frames).collect())
        for frames in (ours, theirs)
    )
    wrong = {row[0] for row in (found - expected) + (expected - found)}
    assert not wrong, [made[number] for number in sorted(wrong)]
    assert found


@SOURCES
@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_random_queries_equal_those_over_parquet(spark, places, adaptive) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        half = max(QUERIES // 2, 1)
        for first in range(0, half, AT_ONCE):
            seed = first + (0 if adaptive == "true" else 1_000_000)
            compared(spark, places, seed, min(AT_ONCE, half - first))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
