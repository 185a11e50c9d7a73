"""Merge the same eight layers with each engine's compactor, on one core and on two.

python benches/python/compaction.py [--rows N] [--rounds N] [--engines a,b] [--codec none|lz4]\
    [--folder FOLDER]

Every layer contains a random eighth of the rows, 16 B keys and 100 B values; nothing is
overwritten. A measurement is a separate process that is limited to the given cores, with the same
files each time; engines take turns. Bytes are those of the rows, times are medians.

The measured time: Siltstone's `compact()`; RocksDB's `compact_range` over all keys; for SlateDB,
whose compactor cannot be called, the time from opening until its manifest shows no L0 any more,
with all of its polls every 10 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from engines import Rows
from work import BATCH, KEY_BYTES, VALUE_BYTES, Work

LAYERS = 8
ROWS = 4_800_000
"""Layers of 70 MB, the size of a default flush, so that the fixed costs of a merge (about 30 ms for
the last sync and three commits) have the same weight as in use."""
CORES = (1, 2)
POLL_SECONDS = 0.01
VALUE_FILL = 50
"""Bytes of a value that a codec can save, if there is a codec."""


class Merger(ABC):
    """One engine, reduced to its compactor."""

    def __init__(self, folder: Path, codec: str, cores: int) -> None:
        self.folder, self.codec, self.cores = folder, codec, cores

    @abstractmethod
    def make(self, layers: list[list[Rows]]) -> None:
        """Write each layer as a layer of L0, and close."""

    @abstractmethod
    def merge(self) -> float:
        """Open, merge everything, and close; return the seconds of the merge."""


class Siltstone(Merger):
    """This package, with its default number of concurrent ranges for the cores."""

    def _open(self) -> Any:
        import siltstone  # noqa: PLC0415

        options = siltstone.Options(
            embedded_compactor=False,
            compression=self.codec,
        )
        return siltstone.open(self.folder, options=options)

    def make(self, layers: list[list[Rows]]) -> None:
        # Closing makes a layer of the rows in memory.
        for layer in layers:
            db = self._open()
            for keys, values in layer:
                db.put_many(keys, values)
            db.close()

    def merge(self) -> float:
        db = self._open()
        begun = time.perf_counter()
        db.compact()
        took = time.perf_counter() - begun
        assert db.stats().l0_entries == 0
        db.close()
        return took


class Rocksdict(Merger):
    """RocksDB, with as many subcompactions as cores."""

    def _open(self) -> Any:
        import rocksdict  # noqa: PLC0415

        codec = rocksdict.DBCompressionType
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(10, block_based=False)
        table.set_block_size(16 << 10)
        options.set_block_based_table_factory(table)
        options.set_compression_type(codec.none() if self.codec == "none" else codec.lz4())
        options.set_disable_auto_compactions(True)
        options.set_write_buffer_size(1 << 30)
        options.increase_parallelism(2)
        options.set_max_subcompactions(self.cores)
        options.set_target_file_size_base(256 << 20)
        return rocksdict.Rdict(str(self.folder), options)

    def make(self, layers: list[list[Rows]]) -> None:
        import rocksdict  # noqa: PLC0415

        db = self._open()
        for layer in layers:
            for keys, values in layer:
                batch = rocksdict.WriteBatch(raw_mode=True)
                for key, value in zip(keys, values, strict=True):
                    batch.put(key, value)
                db.write(batch)
            db.flush()
        db.close()

    def merge(self) -> float:
        db = self._open()
        begun = time.perf_counter()
        db.compact_range(None, None)
        took = time.perf_counter() - begun
        left = db.property_int_value("rocksdb.num-files-at-level0")
        assert left == 0, left
        db.close()
        return took


class Slatedb(Merger):
    """SlateDB, with as many subcompactions as cores."""

    def _settings(self, api: Any, *, compactor: bool) -> Any:
        settings = json.loads(api.Settings.default().to_json_string())
        settings["l0_max_ssts"] = settings["l0_max_ssts_per_key"] = 10 * LAYERS
        settings["l0_sst_size_bytes"] = 1 << 29
        codec = None if self.codec == "none" else "Lz4"
        settings["compression_codec"] = codec
        own = settings["compactor_options"]
        own["poll_interval"] = own["commit_compacted_interval"] = "10ms"
        own["worker"]["compactions_poll_interval"] = "10ms"
        own["worker"]["max_subcompactions"] = self.cores
        own["worker"]["compression_codec"] = codec
        if not compactor:
            settings["compactor_options"] = None
        settings["garbage_collector_options"] = None
        return api.Settings.from_json_string(json.dumps(settings))

    async def _open(self, *, compactor: bool) -> Any:
        import slatedb.uniffi as api  # noqa: PLC0415

        self.api, self.store = api, api.ObjectStore.resolve("file:///")
        self.place = self.folder.absolute().as_posix().lstrip("/")
        builder = api.DbBuilder(self.place, self.store)
        builder.with_settings(self._settings(api, compactor=compactor))
        return await builder.build()

    def make(self, layers: list[list[Rows]]) -> None:
        async def run() -> None:
            db = await self._open(compactor=False)
            for layer in layers:
                for keys, values in layer:
                    batch = self.api.WriteBatch()
                    for key, value in zip(keys, values, strict=True):
                        batch.put(key, value)
                    await db.write(batch)
                kind = self.api.FlushType.MEM_TABLE
                await db.flush_with_options(self.api.FlushOptions(flush_type=kind))
            await db.shutdown()

        asyncio.run(run())

    def merge(self) -> float:
        async def run() -> float:
            begun = time.perf_counter()
            db = await self._open(compactor=True)
            admin = self.api.AdminBuilder(self.place, self.store).build()
            # There is no notification of its end.
            while (await admin.list_manifests(None, None))[-1].l0:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
            took = time.perf_counter() - begun
            await db.shutdown()
            return took

        return asyncio.run(run())


MERGERS: dict[str, type[Merger]] = {
    "siltstone": Siltstone,
    "slatedb": Slatedb,
    "rocksdict": Rocksdict,
}


def layers(rows: int, codec: str) -> list[list[Rows]]:
    """The rows of each layer, in batches."""
    work = Work(Path(), rows, [])
    if codec != "none":
        work.values = [value[:-VALUE_FILL] + bytes(VALUE_FILL) for value in work.values]
    each = rows // LAYERS
    return [work.batches(at * each, each) for at in range(LAYERS)]


def _merge(name: str, folder: str, codec: str, cores: str) -> None:
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(cores)]))
    took = MERGERS[name](Path(folder), codec, int(cores)).merge()
    print(json.dumps(took))  # noqa: T201


def measure(name: str, made: Path, folder: Path, codec: str, cores: int) -> float:
    """The seconds of one merge of a copy of the layers, in a separate process."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder)
    os.sync()
    command = [sys.executable, __file__, "merge", name, str(folder), codec, str(cores)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: exit {done.returncode}\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def prepare(within: Path, name: str, rows: int, codec: str) -> tuple[Path, Path]:
    """An engine's layers, made if they do not exist, and the folder in which they are merged."""
    folder, made = within / name, within / f"{name}-{rows}-{codec}"
    if not made.exists():
        # A database may record its path: it is made where it will be merged.
        shutil.rmtree(folder, ignore_errors=True)
        MERGERS[name](folder, codec, 1).make(layers(rows, codec))
        folder.rename(made)
    return made, folder


def compare(within: Path, names: list[str], rows: int, rounds: int, codec: str) -> str:
    """The table."""
    rows = rows // (LAYERS * BATCH) * LAYERS * BATCH
    times: dict[tuple[str, int], list[float]] = {}
    for name in names:
        prepare(within, name, rows, codec)
    for _ in range(rounds):
        for cores in CORES:
            for name in names:
                made, folder = prepare(within, name, rows, codec)
                took = measure(name, made, folder, codec, cores)
                times.setdefault((name, cores), []).append(took)
    megabytes = rows * (KEY_BYTES + VALUE_BYTES) / 1e6
    speed = {key: megabytes / statistics.median(took) for key, took in times.items()}
    lines = [
        f"{rows:,} rows in {LAYERS} layers, codec {codec}, {rounds} rounds",
        "",
        "| engine | 1 core | 2 cores | 2 cores / 1 | siltstone is faster, 1 core | 2 cores |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name in names:
        one, two = (speed[name, cores] for cores in CORES)
        ours = [speed["siltstone", cores] / speed[name, cores] for cores in CORES]
        lines.append(
            f"| {name} | {one:.0f} MB/s | {two:.0f} MB/s | {two / one:.2f} "
            f"| {ours[0]:.2f} x | {ours[1]:.2f} x |"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table, or perform one measurement."""
    if sys.argv[1:2] == ["merge"]:
        _merge(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--codec", choices=("none", "lz4"), default="none")
    parser.add_argument("--engines", default="siltstone,slatedb,rocksdict")
    parser.add_argument("--folder", type=Path, help="keeps what was made, for the next run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        within = given.folder or Path(temporary)
        within.mkdir(parents=True, exist_ok=True)
        names = given.engines.split(",")
        print(compare(within, names, given.rows, given.rounds, given.codec))  # noqa: T201


if __name__ == "__main__":
    main()
