"""The peers, as the comparison (`benches/python/engines.py`) sets them up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rows import batches

sys.path.append(str(Path(__file__).resolve().parents[1]))

from engines import Engine, Lmdb, Rocksdict

KINDS: dict[str, type[Engine]] = {kind.name: kind for kind in (Rocksdict, Lmdb)}
COMMIT = 10_000
"""Rows of one commit of a load."""


def installed(name: str) -> bool:
    """Whether the peer can be measured here."""
    return KINDS[name].installed()


def of(name: str, folder: Path) -> Engine:
    """A peer, opened in a folder that is made."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = KINDS[name]()
    engine.open(folder)
    return engine


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Engine]:
    """A peer during a block."""
    engine = of(name, folder / name)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def reading(engine: Engine) -> Iterator[None]:
    """The resources that a peer needs for reads, during a block."""
    engine.begin_reads()
    try:
        yield
    finally:
        engine.end_reads()


def fill(engine: Engine, rows: int) -> None:
    """Write rows in the order of their keys."""
    for batch in batches(rows):
        keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        parts = range(0, len(keys), COMMIT)
        engine.put_many([(keys[at : at + COMMIT], values[at : at + COMMIT]) for at in parts])


def delete(engine: Engine, keys: list[bytes]) -> None:
    """Delete keys one by one, and move the tombstones into tables where there are any."""
    if isinstance(engine, Rocksdict):
        for key in keys:
            engine.db.delete(key)
        engine.db.flush()
    elif isinstance(engine, Lmdb):
        with engine.environment.begin(write=True) as transaction:
            for key in keys:
                transaction.delete(key)
