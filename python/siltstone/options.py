"""Options of a handle: names over the engine's one table, a few of them in groups."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from siltstone import _native

__all__ = [
    "Compactors",
    "Gc",
    "OptionValues",
    "Options",
    "Readers",
    "Windows",
    "Writes",
    "named_options",
]

Seconds = timedelta | float | str
"""A duration: ``timedelta``, seconds, or numbers with units: ``"20ms"``, ``"1h 30min"``."""
Bytes = int | str
"""A number of bytes, or text with a unit: ``"64KiB"``, ``"1GiB"``."""


class WindowValues(TypedDict, total=False):
    """Arguments of `Windows`."""

    by: Literal["key", "expiry"]
    length: Seconds
    prefix_bytes: int
    keep: int | None
    max_runs: int


class CompactorValues(TypedDict, total=False):
    """Arguments of `Compactors`."""

    poll_interval: Seconds
    worker_timeout: Seconds


class GcValues(TypedDict, total=False):
    """Arguments of `Gc`."""

    interval: Seconds
    min_age: Seconds
    max_garbage_bytes: Bytes | None
    db_delete_grace: Seconds


class WriteValues(TypedDict, total=False):
    """Arguments of `Writes`."""

    wal_enabled: bool
    skip_memtable_bytes: Bytes | None
    ingest_poll_interval: Seconds | None
    transaction_window_bytes: Bytes


class ReaderValues(TypedDict, total=False):
    """Arguments of `Readers`."""

    checkpoint_lifetime: Seconds
    max_staleness: Seconds | None
    follow_restores: bool


class OptionValues(TypedDict, total=False):
    """Arguments of `Options`. The docstring of `Options` has the meaning, range and default of
    each."""

    flush_interval: Seconds
    flush_bytes: Bytes
    max_parallel_writes: int
    max_wal_puts_per_second: float | None
    l0_sst_size_bytes: Bytes
    l0_manifest_commit_interval: Seconds
    max_memtable_bytes: Bytes
    manifest_poll_interval: Seconds | None
    reader_lease: bool
    readers: Readers | ReaderValues
    max_batch_bytes: Bytes
    writes: Writes | WriteValues
    block_bytes: Bytes
    compression: Literal["none", "lz4", "zstd"] | None
    filter_bits_per_key: int
    block_cache_bytes: Bytes
    metadata_cache_bytes: Bytes
    disk_cache_path: str | os.PathLike[str] | None
    disk_cache_bytes: Bytes | None
    disk_cache_mirror: str | tuple[bytes | None, bytes | None] | None
    read_durable_only: bool
    embedded_compactor: bool
    embedded_gc: bool
    gc: Gc | GcValues
    compactors: Compactors | CompactorValues
    deadline: Seconds
    compaction_scheduler: Literal["tiered", "lazy_leveled", "time_window"]
    l0_compaction_threshold_ssts: int
    l0_max_ssts: int
    max_pending_compaction_bytes: Bytes | None
    max_compactions: int
    compaction_ranges: int | None
    compaction_bytes_per_second: Bytes | None
    level_compaction_threshold_runs: int
    level_max_runs: int
    max_total_runs: int | None
    max_space_amplification: float | None
    tombstone_percent: int
    windows: Windows | WindowValues
    target_sst_bytes: Bytes
    min_move_bytes: Bytes


class _Named(Mapping[str, Any]):
    """A mapping of the given options. Attributes also return defaults."""

    __slots__ = ("_named",)

    _named: dict[str, Any]

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return _DEFAULTS[cls]

    def __getitem__(self, name: str) -> Any:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __getattr__(self, name: str) -> Any:
        defaults = self._defaults()
        if name in defaults:
            return self._named.get(name, defaults[name])
        raise AttributeError(f"there is no option {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._defaults()]

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._named.items())))

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self._named.items())
        return f"{type(self).__name__}({named})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_from_dict, (type(self), self._named))


class _Group(_Named):
    """The options of one part of Siltstone."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._named == dict(other)

    __hash__ = _Named.__hash__


class Windows(_Group):
    """The options of compaction in time windows, for `Options.windows`.

    They apply with ``compaction_scheduler="time_window"``. They are checked at construction, except
    for rules that depend on other options.
    """

    __slots__ = ()

    def __init__(self, **options: Unpack[WindowValues]) -> None:
        self._named = _native.check_group("windows", dict(options))


class Compactors(_Group):
    """The options of compactors in separate processes and of their workers, for
    `Options.compactors`.

    Give all processes of a database the same values: with them a process detects that another one
    is dead.
    """

    __slots__ = ()

    def __init__(self, **options: Unpack[CompactorValues]) -> None:
        self._named = _native.check_group("compactors", dict(options))


class Gc(_Group):
    """The options of the garbage collector of the writer, for `Options.gc`.

    They apply with ``embedded_gc``, which is on by default. `siltstone.admin.run_gc` has its own
    arguments.
    """

    __slots__ = ()

    def __init__(self, **options: Unpack[GcValues]) -> None:
        self._named = _native.check_group("gc", dict(options))


class Readers(_Group):
    """The options of readers, for `Options.readers`. The option `reader_lease` is not in this
    group."""

    __slots__ = ()

    def __init__(self, **options: Unpack[ReaderValues]) -> None:
        self._named = _native.check_group("readers", dict(options))


class Writes(_Group):
    """The options of the WAL, large batches, ingest jobs and transactions, for
    `Options.writes`."""

    __slots__ = ()

    def __init__(self, **options: Unpack[WriteValues]) -> None:
        self._named = _native.check_group("writes", dict(options))


class Options(_Named):
    """Options by name, checked at construction. An option that is not given has its default.

    An `Options` is a mapping of the given options, with durations as float seconds. Attributes also
    return defaults. An unknown name, a wrong type or a value out of range raises `Invalid` (a
    ValueError) that names the option and its range.

    The options of one part of Siltstone are a group with its own class, or a dict:
    ``Options(windows=Windows(by="key", prefix_bytes=4))``, ``{"gc": {"min_age": "1h"}}``. If only
    names are possible, as on the command line, a dot separates the group and the name:
    ``gc.min_age=1h``.
    """

    __slots__ = ()

    def __init__(self, **options: Unpack[OptionValues]) -> None:
        checked = _native.check_options(dict(options))
        self._named = {name: _grouped(name, value) for name, value in checked.items()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._named == other._named

    __hash__ = _Named.__hash__


def named_options(options: Options | Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the given options in plain types.

    :raises Invalid: as for `Options`.
    :raises TypeError: if `options` is not a mapping.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise TypeError(f"options takes siltstone.Options or a dict, not {kind}")
    return _native.check_options(dict(options))


def _from_dict(kind: type[_Named], named: dict[str, Any]) -> _Named:
    return kind(**named)


_GROUPS: dict[str, type[_Group]] = {
    "compactors": Compactors,
    "gc": Gc,
    "readers": Readers,
    "windows": Windows,
    "writes": Writes,
}


def _grouped(name: str, value: Any) -> Any:
    return _GROUPS[name](**value) if name in _GROUPS else value


_TABLE = _native.option_table()


def _table_of_defaults() -> dict[type[_Named], dict[str, Any]]:
    defaults: dict[type[_Named], dict[str, Any]] = {Options: {}}
    for name, _, default, _, _ in _TABLE:
        group, _, own = name.rpartition(".")
        kind: type[_Named] = _GROUPS[group] if group else Options
        defaults.setdefault(kind, {})[own] = default
    return defaults


_DEFAULTS = _table_of_defaults()
_DEFAULTS[Options] |= {name: kind() for name, kind in _GROUPS.items()}


def _documentation(kind: type[_Named], prefix: str) -> str:
    lines = [kind.__doc__ or ""]
    for name, unit, default, span, meaning in _TABLE:
        if not name.startswith(prefix):
            continue
        lines.append(f"\n    {name[len(prefix) :]} ({unit}; {span}; default {default!r})")
        lines.extend(textwrap.wrap(meaning, 92, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"


Options.__doc__ = _documentation(Options, "")
for _name, _kind in _GROUPS.items():
    _kind.__doc__ = _documentation(_kind, f"{_name}.")
