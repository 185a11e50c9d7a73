"""The functions that open, clone and destroy databases; `siltstone` exports them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from siltstone import _native
from siltstone._checkpoints import CheckpointLike, read_at
from siltstone._clone_parents import ParentsLike, given_parents
from siltstone._importable import called, is_name, name_of, resolve
from siltstone._native import Database, Reader
from siltstone._store_options import StoreOptionValue, plain
from siltstone.exceptions import Denied, Invalid
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

__all__ = ["clone", "destroy", "open", "open_reader"]

Url = str | os.PathLike[str]
"""``s3://bucket/path``, ``gs://…``, ``az://…``, ``file:///…``, ``memory://name`` (shared within the
process), or the path of a local folder, where ``~`` is the home folder."""
StoreOptions = Mapping[str, StoreOptionValue]
"""Options of the object store, such as credentials, endpoint and region, under the names of the
`object_store` crate. Environment variables work too. They never appear in error texts, logs or
pickles."""
StoreOptionsSource = StoreOptions | Callable[[], StoreOptions] | str
"""Store options, or a provider: a function that returns them, or its name as ``"module:function"``.
The provider is called at each opening. An open handle calls it again, in a thread of Siltstone,
before ``expires_at`` (seconds since 1970, or a datetime) if the options contain it, and when the
store refuses the credentials. A pickled reader carries the name of the provider, and calls it where
it is unpickled."""


class OpenMode(NamedTuple):
    """How the extension opens a database for writing. The first four fields are arguments of
    `open`."""

    create: bool
    take_over: bool | None
    shared: bool = False
    allow_ingest_behind: bool = False
    ends_others: bool | None = None
    """For a handle of a single operation: whether it fences other handles of its kind. None: for
    other handles."""


def open(
    url: Url,
    *,
    create: bool = True,
    take_over: bool | None = None,
    shared: bool = False,
    allow_ingest_behind: bool = False,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Database:
    """Opens the database at `url` for writing. A database has one writer: this handle.

    :param create: create the database if it does not exist. If False, that is NotFound.
    :param take_over: what to do if an earlier writer did not close. None: raise Conflict, which
        names that writer, if it is known to be alive (a handle of this process or, in a local
        folder, any process); otherwise fence it. True: fence it, alive or not. False: raise
        Conflict whenever it did not close cleanly.
    :param shared: share one handle among all openers in this process that pass True. The first
        opener opens it, later ones join, each closes its own handle, and the last close closes the
        database. Options, store options and the merge operator of a later opener must equal those
        of the handle, or be left out; its `create` and `take_over` are ignored.
    :param allow_ingest_behind: create the database so that ingest jobs may add rows older than all
        existing ones (`siltstone.ingest.Job(behind=True)`). The setting is permanent. Compaction
        then never drops tombstones or expired rows. An existing database without the setting raises
        Unsupported.
    :param options: `Options`, or a dict of the same names.
    :param store_options: options of the object store, or a function that returns them.
    :param merge_operator: the operator that folds the operands of `merge`. The first opening with
        an operator records its name. A recorded built-in operator is found by name and can be left
        out.
    :raises NotFound: if the database does not exist and `create` is False.
    :raises Conflict: if an earlier writer is alive, or did not close and `take_over` is False.
    :raises Invalid: if the URL or an option is not valid, or a setting differs from that of the
        database or of the shared handle.
    :raises Denied, Unavailable, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    operator = described(merge_operator)
    named = named_options(options)
    store = _store(store_options)
    mode = OpenMode(create, take_over, shared, allow_ingest_behind)
    database = _native.open(_text(url), mode, named, store, operator)
    _close_in_workers()
    return database


def _open_for_a_moment(
    url: Url,
    take_over: bool | None = False,
    deadline: float | None = None,
    *,
    create: bool = False,
    ends_others: bool = True,
    store_options: StoreOptionsSource | None = None,
) -> Database:
    """Opens the database for a single operation. If the process is killed before the close, the
    next writer fences this one without `take_over`.

    :param deadline: the option `deadline`, in seconds.
    :param ends_others: whether to fence another writer of this kind that did not close.
    """
    mode = OpenMode(create, take_over, ends_others=ends_others)
    options = {} if deadline is None else {"deadline": deadline}
    database = _native.open(_text(url), mode, options, _store(store_options), None)
    _close_in_workers()
    return database


def open_reader(
    url: Url,
    *,
    checkpoint: CheckpointLike | None = None,
    version: int | None = None,
    options: Options | Mapping[str, Any] | None = None,
    store_options: StoreOptionsSource | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Reader:
    """Opens a reader of the database at `url`. A database has any number of readers, in any
    process.

    A reader sees whole writes in commit order, as soon as they are durable. It follows the writer
    and looks for new data every `manifest_poll_interval`. Readers of one state share a lease in the
    manifest, which keeps the collector from deleting the tables that they read; a reader that finds
    a lease writes nothing. With the option `reader_lease` off, the reader neither looks for nor
    writes a lease, and a scan whose table was collected raises Expired. The option
    `readers.max_staleness` bounds the age of the data that a read returns.

    :param checkpoint: read at this checkpoint, given as itself, its id in any spelling, or its
        name. The reader sees nothing newer and writes nothing. Its reads raise Expired once the
        checkpoint is gone. A pickle of the reader opens the same checkpoint, with a single request
        if the checkpoint covers no WAL.
    :param version: read the tables of this manifest, given by number, without the WAL. Only a
        checkpoint keeps the tables of a version; once they are collected, reads raise Expired.
    :param options: as for `open`; options about writing have no effect.
    :param store_options: as for `open`.
    :param merge_operator: as for `open`; it is part of a pickle.
    :raises NotFound: if there is no database, or the version was collected.
    :raises Expired: if the checkpoint does not exist.
    :raises Denied: if reading is not permitted. A reader without permission to write a lease reads
        without one.
    :raises Invalid: if an argument is not valid, or the part of the log that is not in tables is
        larger than `max_memtable_bytes`.
    :raises Unavailable, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    at = read_at(checkpoint, version)
    operator = described(merge_operator)
    place, store, provider = _reader_arguments(url, store_options)
    named = named_options(options)
    return _native.open_reader(place, named, store, provider, at, operator, merge_operator)


def reopen_reader(
    url: str,
    named: dict[str, Any],
    provider: str | None = None,
    at: str | int | dict[str, Any] | None = None,
    merge_operator: MergeOperatorSource | None = None,
) -> Reader:
    """Opens a reader from its pickle. Store options come from the provider, or else from the
    environment of this process.

    :raises Invalid: if the provider cannot be imported.
    """
    operator = described(merge_operator)
    store = _store(provider)
    try:
        return _native.open_reader(url, named, store, provider, at, operator, merge_operator)
    except Denied as error:
        if provider is None:
            raise with_remedy(error) from error
        raise


_NO_CREDENTIALS = "no credentials were found"
"""A part of the error of the store."""
_REMEDY = (
    ". Store options that are given as a dict stay in the process where they are given: give "
    "store_options as 'module:function', or set AWS_ACCESS_KEY_ID and the other variables in the "
    "environment of the workers"
)


def with_remedy(error: Denied) -> Denied:
    """The error of another process than the one with the store options. If that process found no
    credentials, the text says how to give them to it."""
    text = str(error)
    if _NO_CREDENTIALS not in text or _REMEDY in text:
        return error
    return Denied(text + _REMEDY, operation=error.operation, context=error.context)


def reduced_reader(
    url: str,
    named: dict[str, Any],
    provider: str | None,
    at: str | int | dict[str, Any] | None,
    merge_operator: MergeOperatorSource | None,
) -> tuple[Any, ...]:
    """Returns the pickled form of a reader: `reopen_reader` and its arguments.

    :raises Invalid: if the provider cannot be imported by name.
    """
    if provider is not None:
        resolve(provider)
    return (reopen_reader, (url, named, provider, at, merge_operator))


def clone(
    url: Url,
    *,
    parent: ParentsLike,
    checkpoint: CheckpointLike | None = None,
    start: bytes | None = None,
    end: bytes | None = None,
    store_options: StoreOptionsSource | None = None,
) -> None:
    """Creates a clone of one or more databases at `url`. The clone shares the tables of its parents
    and copies none. Later writes to a parent or to the clone do not affect the other. Open it with
    `open(url)`.

    The clone pins the tables that it needs in its parents, so that compaction, garbage collection
    and deleted checkpoints there do not affect it. Its garbage collector releases a pin when the
    clone no longer needs that parent. Repeat an interrupted call to resume it: a crash leaves a
    complete clone or none.

    :param url: place of the clone, without a database. The clone and its parents must be in the
        same bucket, in folders of the same machine, or in the memory of the same process. Otherwise
        set the store option `clone_parents` to the places of the parents, here and wherever the
        clone is opened, compacted or collected.
    :param parent: the database to clone, or a list of databases with disjoint keys, whose rows the
        clone unites. A member of the list is a URL, a pair of a URL and a checkpoint, or a `Parent`
        with a range of keys. A parent may have an open writer.
    :param checkpoint: checkpoint of the parent to clone, given as itself, its id, or its name.
        None: the state that is durable now, in tables or in the WAL. With several parents it
        applies to each parent without a checkpoint of its own.
    :param start: first key of the clone; None: no lower bound. A range costs no reads or writes:
        the tables of the clone are limited to it, and compaction of the clone rewrites them.
    :param end: end key of the clone, exclusive; None: no upper bound.
    :raises NotFound: if there is no database at `parent`, or it was destroyed.
    :raises Conflict: if another database exists at `url`; the text names it.
    :raises Expired: if the checkpoint has expired or does not exist.
    :raises Unsupported: if a parent is in a place that the clone cannot follow.
    :raises Invalid: if the keys of two parents overlap or their settings differ (the text names
        both), if there is no parent, or if `start` is not below `end`.
    :raises Denied, Unavailable, Timeout, Corruption: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    _native.clone(_text(url), _parents(parent, checkpoint), (start, end), _store(store_options))


def _parents(
    parents: ParentsLike, checkpoint: CheckpointLike | None
) -> list[tuple[str, CheckpointLike | None, bytes | None, bytes | None]]:
    """Converts the parents for the compiled module."""
    given = given_parents(parents, checkpoint)
    return [(_text(one.url), one.checkpoint, one.start, one.end) for one in given]


def destroy(
    url: Url, *, soft: bool = False, store_options: StoreOptionsSource | None = None
) -> None:
    """Destroys a database: deletes all its tables, its log and its manifests.

    An open writer is fenced first (`Fenced`). Then one commit marks the database as destroyed, and
    it cannot be opened any more. The next call finishes an interrupted one. Afterwards a new
    database can be created at the same place: late writes of the old one cannot reach it. A few
    empty objects are kept, which record the last used numbers.

    :param soft: leave the deletion to a collector (`admin.gc`, `admin.run_gc`, `siltstone run-gc`).
        The collector waits for `db_delete_grace`, one day by default, and for all checkpoints and
        leases. A second call without `soft` deletes immediately.
    :raises NotFound: if there is no database at `url`.
    :raises Conflict: if clones or unexpired user checkpoints need the objects; the text names them,
        and the database is unchanged. Not with `soft`.
    :raises Fenced: if another process opened the database for writing during the call.
    :raises Denied: if an object cannot be deleted; repeat the call once it can.
    :raises Invalid, Unavailable, Timeout, Corruption, Unsupported: see `siltstone.exceptions`.
    """
    store_options = hidden(store_options)
    _native.destroy(_text(url), soft, _store(store_options))


def _reader_arguments(
    url: Url, store_options: StoreOptionsSource | None
) -> tuple[str, dict[str, str | int | bool], str | None]:
    """Where, with which store options, and the name of the provider that gave these."""
    store_options = hidden(store_options)
    place = _text(url)
    if place and "://" not in place:
        # A fork or a pickle may open it again in another working directory.
        place = str(Path(place).absolute())
    provider = name_of(store_options)
    return place, _store(store_options), provider


_SCHEMES = frozenset(
    [
        "abfs",
        "abfss",
        "adl",
        "az",
        "azure",
        "dbfs",
        "file",
        "gs",
        "hdfs",
        "http",
        "https",
        "memory",
        "s3",
        "s3a",
        "wasb",
        "wasbs",
    ]
)
"""Schemes of URLs. A path that begins with one and a colon is a URL that was mistyped."""


def _text(url: Url) -> str:
    """Returns the URL or path of a database as text.

    :raises Invalid: if the path is that of a file.
    """
    place = place_of(url)
    # Unlike `Path.is_file`, it is False for a path that no file can have; the store explains those.
    if "://" not in place and os.path.isfile(place):  # noqa: PTH113
        text = "this is a file, and a database is a folder; give the path of a folder"
        raise Invalid(text, context={"path": place})
    return place


def place_of(url: Url) -> str:
    """Returns a URL unchanged, but ``file:/path``, as Hadoop writes it, as ``file:///path``; and a
    path with ``~`` replaced by the home folder.

    :raises TypeError: if `url` is neither text nor a path of text.
    :raises Invalid: if the path is empty or not valid UTF-8, if the home folder is unknown, for a
        URL whose scheme is not followed by two slashes, or for ``:memory:``, which other databases
        use for a database in memory.
    """
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(f"url: a URL or path is str or os.PathLike[str], not {type(url).__name__}")
    if not text:
        raise Invalid("the path is empty; '.' is the working folder")
    if text == ":memory:":
        meant = "a database in memory has a name, by which others in this process open it, too"
        raise Invalid(f"{meant}: memory://name")
    scheme = text.split(":", 1)[0].lower()
    if text.startswith("file:/") and "://" not in text:
        return f"file://{text.removeprefix('file:')}"
    if scheme in _SCHEMES and ":" in text and "://" not in text:
        meant = f"a URL has two slashes behind its scheme: {scheme}://…"
        if "@" in text or "?" in text:
            # A text such as s3:user:password@bucket is not shown.
            raise Invalid(f"{meant}; credentials do not belong into a URL; use store options")
        raise Invalid(f"{meant}; a folder of this name is ./{text}", context={"url": text})
    try:
        text.encode()
    except UnicodeEncodeError:
        wrong = "the path is not valid UTF-8; rename the folder, or link to it by another name"
        raise Invalid(wrong, context={"path": ascii(text)}) from None
    if not text.startswith("~"):
        return text
    try:
        return str(Path(text).expanduser())
    except (RuntimeError, ValueError):
        home = "there is no such home folder; a folder whose name begins with ~ is written ./~name"
        raise Invalid(home, context={"path": text}) from None


class _Hidden(dict[str, Any]):
    """Store options whose values no representation shows: tools that print the variables of a
    frame (error reporters, debuggers, test runners) print this."""

    def __repr__(self) -> str:
        return f"<store options: {', '.join(self)}>"


class _HiddenText(str):
    """Text that is no name of a function, and may be store options in JSON. Nothing shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<text of store options>"


Given = TypeVar("Given")


def hidden(options: Given) -> Given:
    """The same options, such that frames of Siltstone do not show their values. Functions and names
    of functions stay as they are."""
    if isinstance(options, str) and not is_name(options):
        return cast("Given", _HiddenText(options))
    if isinstance(options, _Hidden) or not isinstance(options, Mapping):
        return options
    return cast("Given", _Hidden(options))


def _store(options: StoreOptionsSource | None) -> dict[str, str | int | bool]:
    options = hidden(options)
    if options is None:
        return {}
    if isinstance(options, _Renewable):
        return options
    if isinstance(options, _Hidden):
        return _Hidden(plain(options))
    given = hidden(called(options))
    if not isinstance(given, Mapping):
        taken = "a dict, or a function that gives one"
        raise TypeError(f"store_options takes {taken}, not {type(given).__name__}")
    return _Renewable(given, options)


class _Renewable(_Hidden):
    """Store options of a provider, which can be renewed."""

    def __init__(self, given: StoreOptions, source: StoreOptionsSource) -> None:
        super().__init__(plain(given))
        self._source = source

    def renewed(self) -> dict[str, Any]:
        """Calls the provider again."""
        return _store(self._source)


_hooked_workers: set[int] = set()


def _close_in_workers() -> None:
    """Closes open handles at the end of a forked `multiprocessing` worker, which skips `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _hooked_workers:
        _hooked_workers.add(os.getpid())
        util.Finalize(None, _native.at_exit, exitpriority=100)
