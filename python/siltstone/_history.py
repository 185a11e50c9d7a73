"""The history of a database, from the differences between the versions that are kept.

A manifest is the whole state, and says neither what made it nor when. The store's time of the
object, the folder of a table and the transaction records of applications tell both. Nothing may be
listed that did not take place: what two versions leave open is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from siltstone import _native
from siltstone._checkpoints import moment
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden

__all__ = ["HistoryEvent", "history"]

_EPOCH = datetime.fromtimestamp(0, UTC)
_QUERY = re.compile(r"(.+@)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(~[\d,]+)?(#\d+)?")
"""The application of a stream: the id of Spark's query, and the number of a later call for one
batch."""
_LOAD = "siltstone.load "
"""The beginning of the applications that `Database.load` names itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """A change that `history` lists."""

    kind: Literal["load", "job", "stream", "compaction", "restore"]
    """"load": a `Database.load`. "job": an ingest job, by `siltstone.ingest` or from Spark.
    "stream": a batch of a Spark query that is identified by the query's id. "compaction": tables
    were merged or dropped. "restore": the database was restored to a checkpoint."""
    time: datetime | None
    """Time at which the store wrote the version with the change; None if no kept version shows when
    it took place."""
    version: int | None
    """The first kept version with the change."""
    after_version: int | None
    """The last kept version without the change. If it is not the one before `version`, the versions
    between them were collected, and the change was earlier than `time`."""
    app: str | None = None
    """The application of a job or stream; None if it has none, or if a later version of it was
    adopted together with this one."""
    app_version: int | None = None
    """The version of the application; for a stream the batch id."""
    job: str | None = None
    """Id of the ingest job, as `Job.id`."""
    seq: int | None = None
    """Last sequence number of the job, where the application is known."""
    tables: int | None = None
    """Tables that the change added; None if they were merged before the first kept version."""
    rows: int | None = None
    """Entries in these tables, including tombstones."""
    bytes: int | None = None
    """Size of these tables."""
    removed_tables: int = 0
    """Tables that a compaction or a restore removed."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values for JSON; the time is text in ISO 8601."""
        return {**asdict(self), "time": None if self.time is None else self.time.isoformat()}


def history(
    url: Url, *, since: datetime | None = None, store_options: StoreOptionsSource | None = None
) -> list[HistoryEvent]:
    """Lists loads, ingest jobs, batches of streams, compactions and restores, oldest first.

    The list is made from the versions that are still kept, as `versions` lists them, so it covers
    the grace period of the collector (`gc.min_age`) and the versions that checkpoints keep. Each
    kept version is read by one request. For earlier times only the last version of each application
    is known; these come first, without a time.

    Writes (`put`, `write`, transactions) and flushes are not listed: `siltstone.changes` reads
    them. Jobs that were not submitted, or wait for the writer, are listed by
    `siltstone.ingest.jobs`.

    A manifest records the newest version of each application only. If several versions of one
    application were adopted in one commit, the earlier ones are listed without application. A table
    that a repair gave up is listed as a compaction.

    :param since: list only the changes from this time on, an aware datetime. All kept versions are
        read in any case.
    :raises TypeError: if `since` has no time zone.
    :raises NotFound: if there is no database at `url`.
    :raises Denied, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    if since is not None and since.utcoffset() is None:
        raise TypeError("since must be a datetime with a time zone, such as datetime.now(UTC)")
    store_options = hidden(store_options)
    begin = None if since is None else max(-((_EPOCH - since) // timedelta(milliseconds=1)), 0)
    told = _Told()
    _native.version_states(_text(url), _store(store_options), begin, told.add)
    if told.first is None or since is not None:
        return told.events
    known = {event.job for event in told.events}
    earlier = (app for app in told.first.apps.values() if app["job"] not in known)
    return [*map(_earlier, earlier), *told.events]


@dataclass(frozen=True)
class _State:
    """The fields of a manifest that a comparison needs."""

    id: int
    time: datetime
    tables: Mapping[str, tuple[int, int]]
    """Entries and bytes by name."""
    apps: Mapping[str, Mapping[str, Any]]
    replay_from: int

    def jobs(self) -> set[str]:
        """The jobs whose tables are part of the state."""
        return {job for job in map(_job_of, self.tables) if job is not None}


def _job_of(table: str) -> str | None:
    """The job in whose folder a table is."""
    folder, _, rest = table.partition("/")
    return rest.partition("/")[0] if folder == "ingest" else None


def _kind_of(app: str | None) -> Literal["load", "job", "stream"]:
    if app is not None and app.startswith(_LOAD):
        return "load"
    return "stream" if app is not None and _QUERY.fullmatch(app) else "job"


def _application(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of an event that the record of an application gives."""
    if record is None:
        return {"kind": "job"}
    kind = _kind_of(record["app"])
    if kind == "load":
        # `Database.load` makes up its application, which means nothing to a reader.
        return {"kind": kind, "seq": record["seq"]}
    named = {"app": record["app"], "app_version": record["version"]}
    return {"kind": kind, "seq": record["seq"], **named}


def _earlier(record: Mapping[str, Any]) -> HistoryEvent:
    """The last version of an application, adopted before the first kept version."""
    fields = _application(record)
    return HistoryEvent(time=None, version=None, after_version=None, job=record["job"], **fields)


@dataclass
class _Told:
    """Compares the versions of a database in their order."""

    seen: set[str] = field(default_factory=set)
    """Tables of all versions so far."""
    jobs: set[str] = field(default_factory=set)
    """Jobs whose tables or records were seen."""
    first: _State | None = None
    last: _State | None = None
    events: list[HistoryEvent] = field(default_factory=list)
    """The changes so far, oldest first."""

    def add(
        self,
        id: int,
        millis: int,
        tables: Mapping[str, tuple[int, int]],
        apps: Sequence[Mapping[str, Any]],
        replay_from: int,
    ) -> None:
        """Adds the changes that lead from the last version to this one."""
        by_name = {one["app"]: one for one in apps}
        state = _State(id, moment(millis), tables, by_name, replay_from)
        if self.last is None:
            self.first = state
            self.seen, self.jobs = set(tables), state.jobs()
        else:
            self.events += self.between(self.last, state)
        self.last = state

    def between(self, before: _State, after: _State) -> Iterator[HistoryEvent]:
        """The changes that lead from one version to the next one that is kept."""
        place: dict[str, Any] = {
            "time": after.time,
            "version": after.id,
            "after_version": before.id,
        }
        added = {name: size for name, size in after.tables.items() if name not in before.tables}
        removed = len(before.tables.keys() - after.tables.keys())
        # The name of a table is random: only a restore brings one back.
        restored = any(name in self.seen for name in added)
        if removed and after.id == before.id + 1 and after.replay_from != before.replay_from:
            # A compaction does not move the replay point, and a flush removes no table.
            restored = True
        self.seen |= added.keys()
        if restored:
            self.jobs |= after.jobs()
            yield HistoryEvent(kind="restore", **place, **_sizes(added), removed_tables=removed)
            return
        yield from self._jobs(before, after, added, place)
        merged = {name: size for name, size in added.items() if _job_of(name) is None}
        if removed:
            # In a gap these may contain tables of flushes too.
            sizes: dict[str, Any] = _sizes(merged) if after.id == before.id + 1 else {}
            yield HistoryEvent(kind="compaction", **place, **sizes, removed_tables=removed)

    def _jobs(
        self,
        before: _State,
        after: _State,
        added: Mapping[str, tuple[int, int]],
        place: dict[str, Any],
    ) -> Iterator[HistoryEvent]:
        """The jobs that were adopted, by their sequence numbers as far as these are known."""
        records = {
            one["job"]: one
            for app, one in after.apps.items()
            if before.apps.get(app, {}).get("job") != one["job"]
        }
        tables: dict[str, dict[str, tuple[int, int]]] = {}
        for name, size in added.items():
            job = _job_of(name)
            if job is not None:
                tables.setdefault(job, {})[name] = size
        found = (records.keys() | tables.keys()) - self.jobs
        self.jobs |= found
        for job in sorted(found, key=lambda one: (records.get(one, {}).get("seq", 0), one)):
            sizes = _sizes(tables[job]) if job in tables else {}
            yield HistoryEvent(job=job, **place, **_application(records.get(job)), **sizes)


def _sizes(tables: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    entries, size = (sum(one[at] for one in tables.values()) for at in (0, 1))
    return {"tables": len(tables), "rows": entries, "bytes": size}
