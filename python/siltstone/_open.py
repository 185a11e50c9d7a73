"""Opening databases."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from siltstone import _native
from siltstone._checkpoints import CheckpointLike, read_at
from siltstone._clone_parents import ParentsLike, given_parents
from siltstone._importable import called, name_of, resolve
from siltstone._native import Database, Reader
from siltstone.exceptions import Invalid, Unsupported
from siltstone.merging import MergeOperatorSource, described
from siltstone.options import Options, named_options

__all__ = ["clone", "destroy", "open", "open_reader"]

Url = str | os.PathLike[str]
"""``s3://bucket/path``, ``gs://…``, ``az://…``, ``file:///…``, ``memory://name`` (shared in the
process), or a path of a local folder, where ``~`` is the home folder."""
StoreOptions = Mapping[str, str | int | bool]
"""Credentials, endpoint, region, as the object store's client names them. Environment variables
work too. They are never shown in texts, logs or pickles."""
StoreOptionsSource = StoreOptions | Callable[[], StoreOptions] | str
"""Store options, or the function that gives them: itself, or its name, ``"module:function"``. It is
called at each opening, and by an open handle again: before ``expires_at`` (seconds since 1970, or a
datetime), where it gives that, and when the store refuses the credentials. It is called in a thread
of Siltstone. A pickled reader carries the name, and calls it at the other end."""


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

    :param create: make the database where there is none; otherwise that is NotFound.
    :param take_over: what to do about the writer before. By default it is refused (Conflict, which
        says who it is) while it is known to be alive: a handle of this process or, in a local
        folder, any process; otherwise it is ended (`Fenced`), as one that died must be. True ends
        it, whoever it is. False refuses also wherever it did not close cleanly.
    :param shared: openers in this process that share have one handle together: the first opens,
        others join, each closes its own, and the last close closes. What an opener names (options,
        store options, merge operator) has to be as the handle has it; what it leaves out it takes
        as it is, and `create` and `take_over` are the first one's.
    :param allow_ingest_behind: a database that is made is one that jobs may come behind
        (`siltstone.ingest.Job(behind=True)`), for good. It pays for that: compaction never drops a
        tombstone, nor what has expired, since older rows may still come. One that is there must
        have been made so, else that is Unsupported.
    :param options: `Options`, or a dict of the same names.
    :param store_options: what the store is reached with, or the function that gives it.
    :param merge_operator: folds what `merge` adds; its name is recorded by the first opening that
        brings one. A built-in one that is recorded needs not be brought.
    :raises NotFound: there is no database and `create` is off.
    :raises Conflict: the writer before is alive, or may be and `take_over` is False.
    :raises Invalid: the URL, an option, or a setting that the database was made with, or is shared
        with.
    :raises Denied, Unavailable, Corruption, Unsupported: as their texts say.
    """
    operator = described(merge_operator)
    named = named_options(options)
    store = _store(store_options)
    manner = (create, take_over, shared, allow_ingest_behind, None)
    database = _native.open(_text(url), manner, named, store, operator)
    _close_in_workers()
    return database


def _open_for_a_moment(
    url: Url,
    take_over: bool | None = False,
    *,
    create: bool = False,
    ends_others: bool = True,
    store_options: StoreOptionsSource | None = None,
) -> Database:
    """Opens the database to do one thing and close it. Whoever finds that it did not close, since
    its process was killed, may end it without being told to.

    :param ends_others: whether this ends another one of its kind that did not close.
    """
    manner = (create, take_over, False, False, ends_others)
    database = _native.open(_text(url), manner, {}, _store(store_options), None)
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
    """Opens a reader of the database at `url`: any number of them, in any process.

    It sees whole writes in commit order, as far as they are durable, and follows the writer every
    `manifest_poll_interval`. Readers of one state share a lease in the manifest, so that nothing
    they read is collected: who finds one writes nothing. With the option `reader_lease` off
    none is looked for or written, and a scan whose table was collected ends with Expired. The
    option `readers.max_staleness` says how old what it reads may be.

    :param checkpoint: a checkpoint to read at, itself, its id in any spelling, or its name: nothing
        newer is seen, nothing is written, and reads are Expired once it is gone. A pickle of the
        reader opens the very same one, with a single request where it covers no WAL.
    :param version: the number of a manifest that is still kept, to read its tables, without what
        the WAL held beside them. Nothing keeps them but a checkpoint: once they are collected,
        reads are Expired.
    :param options: as for `open`; those about writing have no effect.
    :param store_options: as for `open`.
    :param merge_operator: as for `open`; it travels with a pickle.
    :raises NotFound: there is no database, or the version is not kept (any more).
    :raises Expired: the checkpoint is gone.
    :raises Denied: reading is not allowed. A reader that may not write a lease reads without one.
    :raises Invalid: also when more of the log is in no table yet than `max_memtable_bytes`.
    :raises Unavailable, Corruption, Unsupported: as their texts say.
    """
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
    """What an unpickled reader calls: store options come from the provider, or else from this
    process's environment.

    :raises Invalid: the provider cannot be imported here.
    """
    operator = described(merge_operator)
    store = _store(provider)
    return _native.open_reader(url, named, store, provider, at, operator, merge_operator)


def reduced_reader(
    url: str,
    named: dict[str, Any],
    provider: str | None,
    at: str | int | dict[str, Any] | None,
    merge_operator: MergeOperatorSource | None,
) -> tuple[Any, ...]:
    """What a reader is pickled as.

    :raises Invalid: its provider has no name that another process could import.
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
    """Makes a database at `url` that begins with what others hold, and copies none of it: they
    share tables, and each goes its own way from there. Open it with `open(url)`.

    What the clone needs of its parents is kept for it, whatever they do: compaction, collection,
    deleted checkpoints. Once it needs nothing of one any more, its collector lets go. A call that
    ended early is repeated: it goes on where it stopped, so a crash leaves a whole clone or none.

    :param url: where there is no database. It and its parents lie in the same bucket, in folders of
        the same machine, or in the memory of the same process; or the store option `clone_parents`
        names where they lie, here and wherever the clone is opened, compacted or collected.
    :param parent: the other database, or a list of some whose keys do not overlap: the clone has
        what all of them hold. A member of the list is a URL, a pair of a URL and a checkpoint, or a
        `Parent`, which says which keys are taken over. Writers may be at work there.
    :param checkpoint: a checkpoint of the parent, its id, or its name, to begin with; None: with
        everything that is durable now, in tables or in the WAL. Of several parents it is that of
        each that names none of its own.
    :param start: the first key to take over; None: from the first one. Nothing is read or written
        for it: the clone's tables show their part, and its compaction rewrites them.
    :param end: the key before which to stop; None: after the last one.
    :raises NotFound: there is no database at `parent`, or it was destroyed.
    :raises Conflict: another database stands at `url`; the text says which.
    :raises Expired: the checkpoint is gone, or its time is over.
    :raises Unsupported: a parent is in a place that the clone does not follow.
    :raises Invalid: keys of two parents overlap, or their settings differ: the text names both; no
        parent; a start that is not below the end.
    :raises Denied, Unavailable, Timeout, Corruption: as their texts say.
    """
    _native.clone(_text(url), _parents(parent, checkpoint), (start, end), _store(store_options))


def _parents(
    parents: ParentsLike, checkpoint: CheckpointLike | None
) -> list[tuple[str, CheckpointLike | None, bytes | None, bytes | None]]:
    """What the compiled part takes."""
    given = given_parents(parents, checkpoint)
    return [(_text(one.url), one.checkpoint, one.start, one.end) for one in given]


def destroy(
    url: Url, *, soft: bool = False, store_options: StoreOptionsSource | None = None
) -> None:
    """Ends a database and deletes what it holds: every table, the log, the manifests.

    Whoever writes to it is ended first (`Fenced`), then one commit says that it is destroyed, and
    from then on nobody opens it. A call that was interrupted is finished by the next one.
    Afterwards a database can be made at the same place: nothing late of the old one reaches it. A
    few objects without content stay, which say how far the numbers have come.

    :param soft: leave the objects for a collector (`admin.gc`, `admin.run_gc`, `siltstone run-gc`),
        which waits for `db_delete_grace`, a day by default, and for every checkpoint and lease.
        Destroying it again without `soft` does not wait.
    :raises NotFound: there is no database here.
    :raises Conflict: clones, or checkpoints that somebody made and that have not expired, need what
        it holds; it says which. Nobody was disturbed. With `soft` it is no reason.
    :raises Fenced: somebody opened it for writing meanwhile.
    :raises Denied: something could not be deleted; call it again once it can.
    :raises Invalid, Unavailable, Timeout, Corruption, Unsupported: as their texts say.
    """
    _native.destroy(_text(url), soft, _store(store_options))


def _reader_arguments(
    url: Url, store_options: StoreOptionsSource | None
) -> tuple[str, dict[str, str | int | bool], str | None]:
    """Where, with which store options, and the name of the provider that gave these."""
    place = _text(url)
    if place and "://" not in place:
        # It may be opened again, after a fork or a pickle, in another working directory.
        place = str(Path(place).absolute())
    provider = name_of(store_options)
    return place, _store(store_options), provider


def _not_built(feature: str) -> Unsupported:
    text = f"{feature} is not built yet in this version of Siltstone"
    return Unsupported(text, context={"feature": feature})


def _text(url: Url) -> str:
    """Where a database is or will be.

    :raises Invalid: a path that names no folder.
    """
    place = place_of(url)
    if "://" not in place and Path(place).is_file():
        text = "this is a file, and a database is a folder; give the folder, or a path of its own"
        raise Invalid(text, context={"path": place})
    return place


def place_of(url: Url) -> str:
    """A URL as it is; a path with the home folder in place of ``~``.

    :raises Invalid: nothing, a home folder that nobody has, and ``:memory:``, which is a file's
        name here and a database in memory elsewhere.
    """
    text = os.fspath(url) if isinstance(url, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(f"url: a URL or path is str or os.PathLike[str], not {type(url).__name__}")
    if not text:
        raise Invalid("the path is empty; '.' is the working folder")
    if text == ":memory:":
        meant = "a database in memory has a name, by which others in this process open it, too"
        raise Invalid(f"{meant}: memory://name")
    if not text.startswith("~"):
        return text
    try:
        return str(Path(text).expanduser())
    except RuntimeError:
        home = "there is no such home folder; a folder whose name begins with ~ is written ./~name"
        raise Invalid(home, context={"path": text}) from None


def _store(options: StoreOptionsSource | None) -> dict[str, str | int | bool]:
    if options is None:
        return {}
    given = options if isinstance(options, Mapping) else called(options)
    if not isinstance(given, Mapping):
        taken = "a dict, or a function that gives one"
        raise TypeError(f"store_options takes {taken}, not {type(given).__name__}")
    return dict(given) if isinstance(options, Mapping) else _Renewable(given, options)


class _Renewable(dict[str, Any]):
    """Store options that a function gave, and gives again."""

    def __init__(self, given: StoreOptions, source: StoreOptionsSource) -> None:
        super().__init__(given)
        self._source = source

    def renewed(self) -> dict[str, Any]:
        """Newer ones."""
        return dict(_store(self._source))


_hooked_workers: set[int] = set()


def _close_in_workers() -> None:
    """Has `multiprocessing` close what is open: its forked workers skip `atexit`."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and os.getpid() not in _hooked_workers:
        _hooked_workers.add(os.getpid())
        util.Finalize(None, _native.at_exit, exitpriority=100)
