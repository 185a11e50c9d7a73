"""Rows of the benches, and handles that do nothing in the background.

A compactor or collector that starts during a measurement would change the database under it, so
handles have neither unless a dimension measures them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

import siltstone
from siltstone import admin

KEY_BYTES = 16
VALUE_BYTES = 100
CHUNK = 100_000
ALONE: dict[str, Any] = {"embedded_compactor": False, "embedded_gc": False}
SEED = 34


def key(number: int) -> bytes:
    """The key of a row; keys have the order of their numbers."""
    return b"k%015d" % number


def value(length: int = VALUE_BYTES) -> bytes:
    """A value that no codec shortens."""
    return random.Random(SEED).randbytes(length)


def open_alone(
    folder: Path, merge_operator: str | None = None, **options: Any
) -> siltstone.Database:
    """Open a database without a compactor and a collector."""
    return siltstone.open(folder, options=ALONE | options, merge_operator=merge_operator)


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows in the order of their keys, as record batches."""
    source = np.random.default_rng(SEED)
    for start in range(0, rows, CHUNK):
        count = min(CHUNK, rows - start)
        numbers = np.arange(start, start + count)
        keys = np.empty((count, KEY_BYTES), np.uint8)
        keys[:, 0] = ord("k")
        for digit in range(1, KEY_BYTES):
            keys[:, KEY_BYTES - digit] = numbers % 10 + ord("0")
            numbers //= 10
        columns = {
            "key": binary(keys.tobytes(), KEY_BYTES),
            "value": binary(source.bytes(count * VALUE_BYTES), VALUE_BYTES),
        }
        yield pa.record_batch(columns)


def binary(data: bytes, width: int) -> pa.Array:
    """Bytes as an array of values of one width."""
    ends = np.arange(0, len(data) + 1, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def some(rows: int, count: int) -> list[bytes]:
    """Random keys of so many rows."""
    source = random.Random(SEED)
    return [key(source.randrange(rows)) for _ in range(count)]


def counted(folder: Path, **options: Any) -> siltstone.Reader:
    """A reader of a copy in memory. Tables of a folder are mapped, which costs no request; a copy
    in the memory of the process is read by requests, as one in an object store."""
    url = f"memory://{quote(str(folder), safe='')}"
    admin.export(folder, url)
    return siltstone.open_reader(url, options=ALONE | options)
