"""Options of a handle: flat names over the engine's one table."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from siltstone import _native

__all__ = ["OptionValues", "Options", "named_options"]

Seconds = timedelta | float | str
"""A duration: ``timedelta``, seconds, or a number with its unit: ``"20ms"``, ``"12h"``."""
Bytes = int | str
"""A number of bytes, or one with its unit: ``"64KiB"``, ``"1GiB"``."""


class OptionValues(TypedDict, total=False):
    """What `Options` takes. Its docstring tells meaning, range and default of each."""

    flush_interval: Seconds
    flush_bytes: Bytes
    max_parallel_writes: int
    max_wal_puts_per_second: float | None
    l0_sst_size_bytes: Bytes
    l0_manifest_commit_interval: Seconds
    max_memtable_bytes: Bytes
    manifest_poll_interval: Seconds | None
    reader_checkpoint: bool
    checkpoint_lifetime: Seconds
    max_batch_bytes: Bytes
    block_bytes: Bytes
    compression: Literal["none", "lz4", "zstd"]
    filter_bits_per_key: int
    block_cache_bytes: Bytes
    metadata_cache_bytes: Bytes
    read_durable_only: bool
    embedded_compactor: bool
    embedded_gc: bool
    gc_interval: Seconds
    min_age: Seconds
    max_garbage_bytes: Bytes | None
    compactor_poll_interval: Seconds
    worker_timeout: Seconds
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
    window_by: Literal["key", "expiry"]
    window: Seconds
    window_prefix_bytes: int
    keep_windows: int | None
    window_max_runs: int
    target_sst_bytes: Bytes
    min_move_bytes: Bytes


class Options(Mapping[str, Any]):
    """Named options, checked when made; everything not named has its default.

    A mapping of what was named, with durations as float seconds. Attributes answer defaults too.
    Unknown names, wrong types and values out of range raise `Invalid` (a ValueError) that names the
    option and its range.
    """

    __slots__ = ("_named",)

    def __init__(self, **options: Unpack[OptionValues]) -> None:
        self._named: dict[str, Any] = _native.check_options(dict(options))

    def __getitem__(self, name: str) -> Any:
        return self._named[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named)

    def __len__(self) -> int:
        return len(self._named)

    def __getattr__(self, name: str) -> Any:
        if name in _DEFAULTS:
            return self._named.get(name, _DEFAULTS[name])
        raise AttributeError(f"there is no option {name!r}")

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_DEFAULTS]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Options) and self._named == other._named

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._named.items())))

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in self._named.items())
        return f"Options({named})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_from_dict, (self._named,))


def named_options(options: Options | Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that were named, in plain types.

    :raises Invalid: as `Options`.
    :raises TypeError: for what is no mapping.
    """
    if options is None:
        return {}
    if isinstance(options, Options):
        return dict(options)
    if not isinstance(options, Mapping):
        kind = type(options).__name__
        raise TypeError(f"options takes siltstone.Options or a dict, not {kind}")
    return _native.check_options(dict(options))


def _from_dict(named: dict[str, Any]) -> Options:
    return Options(**named)


_TABLE = _native.option_table()
_DEFAULTS: dict[str, Any] = {name: default for name, _, default, _, _ in _TABLE}


def _documentation() -> str:
    lines = [Options.__doc__ or ""]
    for name, kind, default, span, meaning in _TABLE:
        lines.append(f"\n    {name} ({kind}; {span}; default {default!r})")
        lines.extend(textwrap.wrap(meaning, 92, initial_indent=" " * 8, subsequent_indent=" " * 8))
    return "\n".join(lines) + "\n"


Options.__doc__ = _documentation()
