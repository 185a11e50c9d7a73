"""A report about the workers of a cluster: whether tasks can use the package."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import pyarrow as pa

import siltstone
from siltstone._open import StoreOptionsSource, Url
from siltstone.spark._arguments import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Doctor", "Slot", "doctor"]

TASKS_A_SLOT = 4
"""Tasks for each slot. Spark chooses the slots; with several tasks each probably gets one."""
CLOCK_SECONDS = 5.0
"""The most difference between two clocks that is no problem. Ages are compared by dates."""


@dataclass(frozen=True)
class Slot:
    """One worker process."""

    host: str
    """The name of the machine."""
    process: int
    """The process id."""
    python: str
    """Version of the interpreter."""
    siltstone: str
    """Version of the package; empty: it cannot be imported."""
    pyarrow: str
    """Version."""
    machine: str
    """Processor and C library."""
    clock: float
    """Seconds since 1970 when it answered."""
    store: str
    """The result of opening the database, "ok" or the error; empty if none was named."""
    problem: str
    """The error of the import; empty if there was none."""


@dataclass(frozen=True)
class Doctor:
    """The result of `doctor`."""

    slots: tuple[Slot, ...]
    """The workers that answered, once each."""
    problems: tuple[str, ...]
    """Problems that make jobs fail, or may; empty if there are none."""

    def __str__(self) -> str:
        """One line for each worker, then the problems."""
        lines = [
            f"{slot.host} process {slot.process}: siltstone {slot.siltstone or '(missing)'}, "
            f"Python {slot.python}, pyarrow {slot.pyarrow}, {slot.machine}"
            + (f", store {slot.store}" if slot.store else "")
            for slot in self.slots
        ]
        return "\n".join([*lines, *(self.problems or ("no problems",))])


def doctor(
    spark: SparkSession,
    url: Url | None = None,
    *,
    store_options: StoreOptionsSource | None = None,
) -> Doctor:
    """Checks the workers of a cluster: the package and its compiled part, versions, the clock, and
    access to a database. Call ``print(doctor(spark, url))`` before the first job on a new cluster.

    Spark chooses the workers: one that is busy, or starts later, is not checked.

    :param url: a database that each worker opens to read one row; None: none.
    :param store_options: as for `scan`; a dict stays in this process.
    """
    check_session(spark)
    from siltstone.spark._scan import slots  # noqa: PLC0415 - pyspark is an extra

    place = None if url is None else str(url)
    provider = None if isinstance(store_options, Mapping) else store_options
    tasks = TASKS_A_SLOT * slots(spark)
    schema = ", ".join(f"{one.name} {_KINDS[str(one.type)]}" for one in fields(Slot))
    answers = spark.range(0, tasks, 1, tasks).mapInArrow(_asker(place, provider), schema)
    here = time.time()
    found = {(row.host, row.process): Slot(**row.asDict()) for row in answers.collect()}
    took = time.time() - here
    workers = tuple(sorted(found.values(), key=lambda slot: (slot.host, slot.process)))
    return Doctor(workers, tuple(_problems(workers, here, took)))


_KINDS = {"str": "string", "int": "bigint", "float": "double"}


def _problems(slots: tuple[Slot, ...], here: float, took: float) -> Iterator[str]:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}."
    for slot in slots:
        where = f"{slot.host} process {slot.process}"
        if slot.problem:
            yield (
                f"{where}: {slot.problem}; install siltstone[spark] there, for the interpreter "
                "that PYSPARK_PYTHON names"
            )
        elif slot.siltstone != siltstone.__version__:
            yield (
                f"{where}: siltstone {slot.siltstone}, and {siltstone.__version__} here; install "
                "one version everywhere"
            )
        if not slot.python.startswith(minor):
            yield f"{where}: Python {slot.python}, and {platform.python_version()} here"
        if not here - CLOCK_SECONDS <= slot.clock <= here + took + CLOCK_SECONDS:
            yield f"{where}: its clock is {slot.clock - here:+.0f} s off"
        if slot.store not in ("", "ok"):
            yield f"{where}: {slot.store}"


def _asker(
    url: str | None, provider: StoreOptionsSource | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a worker runs. It is pickled by value and imports nothing of this package
    before it runs, because the package may be missing there.
    """

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os  # noqa: PLC0415 - the function is pickled alone
        import platform  # noqa: PLC0415
        import socket  # noqa: PLC0415
        import time  # noqa: PLC0415

        version = store = problem = ""
        try:
            import siltstone  # noqa: PLC0415

            version = siltstone.__version__
        except Exception as error:  # noqa: BLE001 - the error of the import is the answer
            problem = f"{type(error).__name__}: {error}"
        if url is not None and not problem:
            try:
                options = {"reader_lease": False}
                with siltstone.open_reader(url, options=options, store_options=provider) as reader:
                    next(iter(reader.scan(limit=1)), None)
                store = "ok"
            except Exception as error:  # noqa: BLE001 - a provider may raise any error
                store = f"{type(error).__name__}: {error}"
        library = " ".join(platform.libc_ver()).strip()
        slot = {
            "host": socket.gethostname(),
            "process": os.getpid(),
            "python": platform.python_version(),
            "siltstone": version,
            "pyarrow": pa.__version__,
            "machine": f"{platform.machine()} {library}".strip(),
            "clock": time.time(),
            "store": store,
            "problem": problem,
        }
        for _ in batches:
            yield pa.RecordBatch.from_pylist([slot])

    return ask
