"""Loads and streams on a real standalone cluster, with one failure per round, compared with a model
of the committed rows (RFC 0047).

``SILTSTONE_SPARK_ROUNDS=200 pytest -s tests/python/test_spark_cluster.py`` is the long form, used
by `make soak`. ``SILTSTONE_SPARK_ROUND=driver`` runs only rounds with this word in their name.
`test_spark_faults.py` is the short form, without a cluster.
"""

from __future__ import annotations

import collections
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import siltstone
import siltstone.spark as kv
from siltstone import ingest
from siltstone.spark import _commit
from siltstone.spark._staging import stage
from spark_cluster_for_tests import (
    HOSTS,
    SETTINGS,
    Cluster,
    follow_parent,
    has_both_addresses,
)
from spark_for_tests import own_jvm, worker_path
from spark_sources_for_tests import SOURCES, Away, ShortLived
from spark_versions_for_tests import frame_of_table

ROUNDS = int(os.environ.get("SILTSTONE_SPARK_ROUNDS", "0"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ROUNDS, reason="of `make soak`: SILTSTONE_SPARK_ROUNDS says how many"),
    pytest.mark.skipif(not has_both_addresses(), reason="127.0.0.2 is no address of this system"),
]

KEYS = 400
PATIENCE = 600.0
TASKS = 4
OURS = {
    "spark.cores.max": "4",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.speculation.quantile": "0.5",
    # Data of a lost worker is soon computed again.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
    # A copy of a task that lost is not killed: it ends late and uploads objects without a use.
    "spark.python.task.killTimeout": "600s",
}
SCHEMA = "key binary, value binary"


def going_wrong(batches, marks: str, fault: str):
    """A task that fails once after its rows, or in every attempt."""
    from pyspark import TaskContext  # noqa: PLC0415

    number = TaskContext.get().partitionId()
    mark = Path(marks, f"{fault}{number}")
    yield from batches
    if fault == "every attempt" and number == 1:
        raise ArithmeticError("every attempt fails")
    if number not in (0, 1) or mark.exists():
        return
    mark.touch()
    if fault == "raised":
        raise ArithmeticError("the first attempt fails")
    if fault == "killed":
        os._exit(9)
    if fault == "executor" and number == 0:
        kill_executor()
    if fault in ("worker", "stopped") and number == 0:
        wait_for(Path(marks, "go").exists)


def staging_late(batches, staging, marks: str):
    """Stages the rows of a task. The first attempt of one task reads all its rows, then waits for
    permission and stages without further requests to Spark."""
    from pyspark import TaskContext  # noqa: PLC0415

    held, mark = list(batches), Path(marks, "late")
    late = TaskContext.get().partitionId() == 0 and not mark.exists()
    if late:
        mark.touch()
        wait_for(Path(marks, "go").exists)
    told = list(stage(iter(held), staging))
    if late:
        Path(marks, "uploaded").touch()
    yield from told


def kill_executor() -> None:
    """Kills the executor of this worker: the parent process is the daemon, and its parent is the
    executor."""
    status = Path("/proc", str(os.getppid()), "status").read_text()
    executor = next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1]
    os.kill(int(executor), 9)


def wait_for(is_so: Callable[[], bool]) -> None:
    """Waits for a condition that another process brings about."""
    pause, ends = threading.Event(), time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends
        pause.wait(0.02)


class Story:
    """A database, its model, and the actions on both."""

    def __init__(self, spark, cluster: Cluster, folder: Path) -> None:
        self.spark = spark
        self.cluster = cluster
        self.folder = folder
        self.url = str(folder / "db")
        siltstone.open(self.url).close()
        self.chance = random.Random(47)
        self.model: dict[bytes, bytes] = {}
        self.turn = 0
        self.told: collections.Counter[str] = collections.Counter()

    # --- Parts of a round -------------------------------------------------------------------------

    @property
    def marks(self) -> Path:
        place = self.folder / f"marks{self.turn}"
        place.mkdir(exist_ok=True)
        return place

    def rows(self, keys: range = range(KEYS), which: str = "") -> dict[bytes, bytes]:
        chosen = self.chance.sample(keys, self.chance.randrange(20, len(keys) // 2))
        return {
            b"key/%04d" % n: b"%d of turn %d%s" % (n, self.turn, which.encode()) for n in chosen
        }

    def frame(self, rows: dict[bytes, bytes], fault: str):
        table = pa.table({"key": list(rows), "value": list(rows.values())})
        frame = frame_of_table(self.spark, table).repartition(TASKS)
        return frame.mapInArrow(partial(going_wrong, marks=str(self.marks), fault=fault), SCHEMA)

    def loading(self, rows: dict[bytes, bytes], fault: str, app: str = "model", **named):
        """A load with an application and a version: a repeated call is the same load."""
        layout = named.pop("layout", None) or self.chance.choice(("range", "runs"))
        frame = self.frame(rows, fault)
        txn = (app, self.turn)
        return partial(
            kv.bulk_load, frame, self.url, key="key", layout=layout, txn=txn, timeout=60, **named
        )

    def content(self, url: str | None = None) -> dict[bytes, bytes]:
        with siltstone.open_reader(url or self.url, options={"reader_lease": False}) as reader:
            return dict(reader.scan())

    def settle(self) -> None:
        """The database holds the model. Only a reader looks: no writer opens the database between
        failures, so each load has to recover alone. Sometimes the database is compacted."""
        assert self.content() == self.model
        if self.chance.random() < 0.3:
            siltstone.admin.compact(self.url)
            assert self.content() == self.model

    def repeated(self, load) -> None:
        """Runs the program again: it finds its version already applied."""
        assert load().repeated
        self.settle()

    # --- Rounds -----------------------------------------------------------------------------------

    def load_with(self, fault: str) -> None:
        """A load whose tasks fail first and then succeed."""
        rows = self.rows()
        load = self.loading(rows, fault)
        done = load()
        assert (done.rows, done.repeated) == (len(rows), False)
        self.model |= rows
        self.settle()
        self.repeated(load)

    def every_attempt(self) -> None:
        with pytest.raises(Exception, match="every attempt fails"):
            self.loading(self.rows(), "every attempt")()
        self.settle()

    def worker_killed(self) -> None:
        """A worker is killed with its executor, and is started again."""
        rows = self.rows()
        load = self.loading(rows, "worker")
        host = self.chance.choice(HOSTS)

        def kill() -> None:
            wait_for(Path(self.marks, "worker0").exists)
            self.cluster.kill_worker(host)
            Path(self.marks, "go").touch()

        with beside(kill):
            assert load().rows == len(rows)
        self.cluster.begin_worker(host)
        self.model |= rows
        self.settle()

    def late_loser(self) -> None:
        """A copy of a slow task wins, the load is committed, and then the slow task ends."""
        rows = self.rows()
        # The load has as many tasks as the frame. Spark makes no copy of a single task.
        load = self.loading(rows, "none", layout="runs")
        with pytest.MonkeyPatch.context() as patch:
            late = partial(staging_late, marks=str(self.marks))
            _, action = _commit.run.__defaults__
            patch.setattr(_commit.run, "__defaults__", (late, action))
            assert load().rows == len(rows)
        assert Path(self.marks, "late").exists()
        self.model |= rows
        Path(self.marks, "go").touch()
        wait_for(Path(self.marks, "uploaded").exists)
        self.settle()
        self.repeated(load)

    def commit_with(self, fault: str) -> None:
        """The commit raises an error: before the submission, after the writer took the load in, or
        after a submission that no writer has taken in."""
        rows = self.rows()
        load = self.loading(rows, "none")
        with broken(fault), pytest.raises(Away):
            load()
        if fault == "before":
            self.settle()
            return
        # The program is run again. It also takes in a load that was only submitted.
        done = load()
        assert done.repeated or fault == "asked for"
        self.model |= rows
        self.settle()
        self.repeated(load)

    def format_commits_with(self, fault: str) -> None:
        """The same for `format("siltstone")`. Spark then calls abort, regardless of the effect of
        the commit."""
        rows = self.rows()
        frame = self.frame(rows, "none")

        def save(kind: str) -> None:
            write = frame.write.format(f"siltstone_{kind}").mode("append").option("timeout", "60")
            write.option("txnAppId", "model").option("txnVersion", self.turn).save(self.url)

        with pytest.raises(Exception, match="Away"):
            save(fault)
        if fault == "after":
            self.model |= rows
        self.settle()
        # If the load were applied again, it would hide these rows.
        on_top = dict.fromkeys(rows, b"put on top")
        self.loading(on_top, "none", app="on top")()
        self.model |= dict.fromkeys(rows, b"put on top")
        save("whole")
        self.model |= {} if fault == "after" else rows
        self.settle()

    def driver_killed(self, fault: str) -> None:
        rows = self.rows()
        place = self.folder / f"rows{self.turn}.parquet"
        pq.write_table(pa.table({"key": list(rows), "value": list(rows.values())}), place)
        program = Path(__file__).with_name("spark_driver_for_tests.py")
        done = subprocess.run(
            [sys.executable, program, self.cluster.url, self.url, place, str(self.turn), fault],
            env={**os.environ, "PYTHONPATH": worker_path()},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            preexec_fn=follow_parent,
        )
        assert done.returncode == 9, done.stderr
        if fault == "after":
            self.model |= rows
        self.settle()
        done = self.loading(rows, "none")()
        assert done.repeated == (fault == "after")
        self.model |= {} if done.repeated else rows
        self.settle()

    def two_loads(self) -> None:
        """Two loads at once, with common keys: the load with the higher number wins."""
        both = [self.rows(which=which) for which in (" one", " two")]
        loads = [self.loading(rows, "none", app) for rows, app in zip(both, "ab", strict=True)]
        found = {}

        def run(at: int) -> None:
            found[at] = loads[at]()

        with beside(partial(run, 0)):
            run(1)
        for at in sorted(found, key=lambda at: found[at].seq):
            self.model |= both[at]
        self.settle()

    def one_version_twice(self) -> None:
        """Two programs load the same version at once: only one of them takes effect."""
        both = [self.rows(which=which) for which in (" one", " two")]
        loads = [self.loading(rows, "none") for rows in both]
        found = {}

        def run(at: int) -> None:
            found[at] = loads[at]()

        with beside(partial(run, 0)):
            run(1)
        (first,) = [at for at in found if not found[at].repeated]
        assert found[0].seq == found[1].seq
        self.model |= both[first]
        self.settle()

    def compaction_beside(self) -> None:
        rows = self.rows()
        over = threading.Event()

        def compacts() -> None:
            while not over.is_set():
                siltstone.admin.compact(self.url)

        with beside(compacts, over):
            assert self.loading(rows, "raised")().rows == len(rows)
        self.model |= rows
        self.settle()

    def clone_beside(self) -> None:
        """Clones made during a load contain all of it, or none of it."""
        rows, over, states = self.rows(), threading.Event(), []

        def clones() -> None:
            number = 0
            while not over.is_set():
                place = str(self.folder / f"clone{self.turn}-{number}")
                number += 1
                try:
                    siltstone.clone(place, parent=self.url)
                except siltstone.Unsupported:
                    continue  # its log holds a load that is not installed yet
                states.append(self.content(place))
                siltstone.destroy(place)

        with beside(clones, over):
            assert self.loading(rows, "killed")().rows == len(rows)
        after = self.model | rows
        assert states
        assert all(state in (self.model, after) for state in states)
        self.model = after
        self.settle()

    def restore_beside(self) -> None:
        """A restore undoes a load that was already installed; otherwise the load comes after the
        restore."""
        held = siltstone.admin.create_checkpoint(self.url, lifetime=600)
        before, rows = dict(self.model), self.rows()
        load = self.loading(rows, "none")

        def restores() -> None:
            try:
                siltstone.admin.restore(self.url, held)
            except (siltstone.Fenced, siltstone.Unsupported):
                self.told["(a restore was refused)"] += 1

        try:
            with beside(restores):
                load()
        except (siltstone.Conflict, siltstone.Fenced, siltstone.Timeout) as refused:
            self.told[f"(beside a restore a load was refused: {type(refused).__name__})"] += 1
        found = self.content()
        assert found in (before, before | rows)
        again = load()
        assert again.repeated == (found != before)
        self.model = before | rows
        self.settle()
        siltstone.admin.delete_checkpoint(self.url, held)

    def stream_with(self, fault: str) -> None:
        """A query stops at some point of its second or a later batch, and is started again."""
        place = self.folder / f"stream{self.turn}"
        batches = [self.rows(which=f" batch {n}") for n in range(3)]
        (place / "source").mkdir(parents=True)
        for number, rows in enumerate(batches):
            path = place / "source" / f"{number}.parquet"
            pq.write_table(pa.table({"key": list(rows), "value": list(rows.values())}), path)
            os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
        # Submissions can only be broken in this process.
        by_format = fault != "asked for" and self.chance.random() < 0.5
        if fault in ("before", "after", "asked for"):
            self.failing_query(place, fault, by_format)
        elif fault == "stopped":
            query = self.query(place, by_format, "stopped")
            wait_for(Path(self.marks, "stopped0").exists)
            query.stop()
            Path(self.marks, "go").touch()
        else:
            assert self.query(place, by_format).awaitTermination(PATIENCE)
            forget_last(place / "checkpoint", planned=fault == "unplanned")
        assert self.query(place, by_format).awaitTermination(PATIENCE)
        for rows in batches:
            self.model |= rows
        self.settle()
        shutil.rmtree(place)

    def query(self, place: Path, by_format: bool, fault: str = "none", kind: str = "whole"):
        """Starts the query with failing tasks or commits."""
        stage = partial(going_wrong, marks=str(self.marks), fault=fault)
        stream = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        stream = stream.parquet(str(place / "source")).mapInArrow(stage, SCHEMA)
        writing = stream.writeStream.option("checkpointLocation", str(place / "checkpoint"))
        writing = writing.trigger(availableNow=True)
        if by_format:
            return writing.format(f"siltstone_{kind}").option("path", self.url).start()
        return writing.foreachBatch(kv.upsert(self.url, key="key", timeout=60)).start()

    def failing_query(self, place: Path, fault: str, by_format: bool) -> None:
        """A query whose second commit fails. The query that is started again recovers alone."""
        if by_format:
            with pytest.raises(Exception, match="Away"):
                self.query(place, by_format, kind=fault).awaitTermination(PATIENCE)
            return
        with broken(fault, at=1), pytest.raises(Exception, match="Away"):
            self.query(place, by_format).awaitTermination(PATIENCE)


def forget_last(checkpoint: Path, planned: bool) -> None:
    """Restores the state before the query noted its last batch or, with `planned`, planned it."""
    last = max((one.name for one in (checkpoint / "commits").glob("[0-9]*")), key=int)
    for folder in ("commits", "offsets") if planned else ("commits",):
        (checkpoint / folder / last).unlink()
        (checkpoint / folder / f".{last}.crc").unlink(missing_ok=True)


class beside:  # noqa: N801 - reads as a statement
    """Runs something during the block. An error of it is raised at the end of the block."""

    def __init__(self, what: Callable[[], object], over: threading.Event | None = None) -> None:
        self.over = over
        self.failed: list[BaseException] = []
        self.thread = threading.Thread(target=self._run, args=(what,))

    def _run(self, what: Callable[[], object]) -> None:
        try:
            what()
        except BaseException as error:
            self.failed.append(error)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        if self.over is not None:
            self.over.set()
        self.thread.join()
        if self.failed and kind is None:
            raise self.failed[0]


class broken:  # noqa: N801 - reads as a statement
    """Submissions of this process fail: before or after they take effect."""

    def __init__(self, fault: str, at: int = 0) -> None:
        self.fault = fault
        self.at = at

    def __enter__(self) -> None:
        self.submit = ingest.submit
        ingest.submit = self._submit

    def __exit__(self, *_: object) -> None:
        ingest.submit = self.submit

    def _submit(self, request, **named):
        if self.at:
            self.at -= 1
            return self.submit(request, **named)
        if self.fault != "before":
            self.submit(request, **{**named, "wait": self.fault == "after"})
        raise Away(self.fault)


ROUNDS_OF: dict[str, Callable[[Story], None]] = {
    "a task raises": lambda story: story.load_with("raised"),
    "a task is killed": lambda story: story.load_with("killed"),
    "an executor is killed": lambda story: story.load_with("executor"),
    "a worker is killed": Story.worker_killed,
    "all attempts fail": Story.every_attempt,
    "a late loser of speculation": Story.late_loser,
    "commit raises before": lambda story: story.commit_with("before"),
    "commit raises after": lambda story: story.commit_with("after"),
    "commit raises having asked": lambda story: story.commit_with("asked for"),
    "format, commit raises before": lambda story: story.format_commits_with("before"),
    "format, commit raises after": lambda story: story.format_commits_with("after"),
    "driver killed before": lambda story: story.driver_killed("before"),
    "driver killed after": lambda story: story.driver_killed("after"),
    "two loads": Story.two_loads,
    "one version twice": Story.one_version_twice,
    "compaction beside": Story.compaction_beside,
    "clones beside": Story.clone_beside,
    "a restore beside": Story.restore_beside,
    "stream, before": lambda story: story.stream_with("before"),
    "stream, after": lambda story: story.stream_with("after"),
    "stream, having asked": lambda story: story.stream_with("asked for"),
    "stream, stopped in a task": lambda story: story.stream_with("stopped"),
    "stream, batch not noted": lambda story: story.stream_with("unnoted"),
    "stream, batch not planned": lambda story: story.stream_with("unplanned"),
}


@pytest.fixture
def cluster(tmp_path: Path):
    made = Cluster(tmp_path)
    yield made
    made.end()


@pytest.fixture
def session(cluster: Cluster, monkeypatch):
    from pyspark.sql import SparkSession  # noqa: PLC0415

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", HOSTS[0])
    monkeypatch.setenv("PYTHONPATH", worker_path())
    monkeypatch.setattr(ingest, "Job", ShortLived)
    builder = SparkSession.builder.master(cluster.url)
    for name, value in {**SETTINGS, **OURS}.items():
        builder = builder.config(name, value)
    with own_jvm():
        session = builder.getOrCreate()
        for source in SOURCES:
            session.dataSource.register(source)
        yield session
        session.stop()


def test_every_load_is_there_once_or_not_at_all(session, cluster: Cluster, tmp_path: Path) -> None:
    story = Story(session, cluster, tmp_path)
    over = threading.Event()

    def collects() -> None:
        while not over.wait(0.5):
            siltstone.admin.gc(story.url, min_age=0)

    chosen = os.environ.get("SILTSTONE_SPARK_ROUND")
    names = [name for name in ROUNDS_OF if chosen is None or chosen in name]
    with beside(collects, over):
        for story.turn in range(ROUNDS):
            name = names[story.turn % len(names)]
            begun = time.monotonic()
            ROUNDS_OF[name](story)
            shutil.rmtree(story.marks)
            story.told[name] += 1
            print(f"{story.turn:4} {name}: {time.monotonic() - begun:.1f} s", flush=True)
    kv.release()
    check_the_end(story)
    for name, times in story.told.items():
        print(f"{times:5}  {name}")


def check_the_end(story: Story) -> None:
    """The database equals the model, and has no table that is not referenced."""
    with siltstone.open(story.url) as db:
        db.flush(memtable=True)
        db.compact()
        assert dict(db.scan()) == story.model

    def tidy() -> bool:
        siltstone.admin.gc(story.url, min_age=0)
        return tables(story.url) == named(story.url)

    # The objects of a killed driver are collected after the deadline of its job.
    wait_for(tidy)
    report = siltstone.admin.verify(story.url)
    assert report.ok, report.problems
    assert not report.orphans
    with siltstone.open_reader(story.url) as reader:
        assert dict(reader.scan()) == story.model


def tables(url: str) -> set[str]:
    """The tables in the folders."""
    there = [*Path(url, "compacted").glob("*.sst"), *Path(url, "ingest").rglob("*.sst")]
    return {path.relative_to(url).as_posix() for path in there}


def named(url: str) -> set[str]:
    """The tables that the manifest names."""
    manifest = siltstone.admin.manifest(url)
    runs = [*manifest["l0"], *manifest["runs"]]
    return {table["name"] for run in runs for table in run["tables"]}
