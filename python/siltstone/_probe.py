"""Examination of a store; `siltstone.admin` exports it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from siltstone import _display, _native
from siltstone._numbers import count_of, size_of
from siltstone._open import StoreOptionsSource, Url, _store, _text, hidden
from siltstone.options import Bytes

__all__ = ["StoreProperty", "StoreReport", "probe"]

_MOST_ROUNDS = (1 << 32) - 1
_LARGEST = (1 << 63) - 1
"""Greatest size that the compiled module takes; it refuses it with the range."""


@dataclass(frozen=True, slots=True)
class StoreProperty:
    """One property of a store, as `probe` found it."""

    name: str
    """Name of the property."""
    result: Literal["passed", "failed", "skipped"]
    """Whether the store has the property: `skipped` if the probe could not find out."""
    needed: bool
    """Whether Siltstone needs the property."""
    reason: str
    """The examination, the defect, or the reason why the property was skipped."""
    remedy: str
    """The remedy for a store without the property."""

    def __str__(self) -> str:
        text = f"{self.name} {self.result}: {self.reason}"
        return text if self.result == "passed" else f"{text}; {self.remedy}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StoreReport:
    """The result of `probe`."""

    store: str
    """The store and the path in it."""
    properties: dict[str, StoreProperty]
    """Every property, by name: `read_after_write`, `list_after_write`, `list_order`,
    `create_twice`, `racing_creates`, `range_read`, `range_past_end`, `delete_then_create`, `copy`,
    `clock`, `large_objects`."""
    clock_offset: float | None
    """Seconds by which the clock of the store is ahead of this machine; negative if it is behind,
    None if unknown."""
    clock_precision: float | None
    """Maximum error of `clock_offset` in seconds. Many stores have dates in whole seconds."""
    largest_object: int
    """Size in bytes of the largest object that was stored and read back; 0 if none was."""
    latency: dict[str, float]
    """Median latency in seconds of a small request, by operation: `create`, `get`, `list`,
    `delete`, `copy`. An operation that never succeeded is missing."""
    requests: int
    """Requests of the probe, those that delete its objects included."""
    left: tuple[str, ...]
    """Names of objects of the probe that the store did not delete."""

    @property
    def ok(self) -> bool:
        """Whether all properties that Siltstone needs passed."""
        return all(one.result == "passed" for one in self.properties.values() if one.needed)

    def __repr__(self) -> str:
        bad = [one for one in self.properties.values() if one.needed and one.result != "passed"]
        words = [f"{one.name} {one.result}" for one in bad] or ["ok"]
        return _display.line("admin.StoreReport", *words, **self._key_figures())

    def _key_figures(self) -> dict[str, object]:
        millis = {name: f"{1000 * took:.1f} ms" for name, took in self.latency.items()}
        return {
            "store": self.store,
            "largest_object": _display.binary(self.largest_object),
            **millis,
        }

    def _repr_html_(self) -> str:
        """HTML for notebooks: a row for each property."""
        heads = ("property", "result", "needed", "reason")
        rows = ((one.name, one.result, one.needed, one.reason) for one in self.properties.values())
        return _display.grid(f"siltstone.admin.StoreReport of {self.store}", heads, rows)

    def to_dict(self) -> dict[str, Any]:
        """The fields and `ok`, in plain types."""
        return {"ok": self.ok, **asdict(self)}


def probe(
    url: Url,
    *,
    rounds: int = 200,
    largest_object: Bytes = 24 << 20,
    store_options: StoreOptionsSource | None = None,
    on_progress: Callable[[int, int], object] | None = None,
) -> StoreReport:
    """Examines whether the store at `url` has the properties that a database relies on, before a
    database is made there or beside one. It creates objects below `probe/` with names of its own,
    and deletes them. It reads and changes nothing else.

    The probe examines:

    - conditional creates: a second create of a name is refused, and exactly one of two creates at
      the same time succeeds
    - whether reads and listings show an object as soon as it was created, and the order of listings
    - reads of ranges, also beyond the end of an object
    - whether a deleted object is gone, and its name can be created again
    - copies within the store, where Siltstone uses them
    - the clock of the store
    - large objects, and the latency of small requests

    A race that the store loses seldom can pass: more rounds find more. A probe cannot prove that
    creates are atomic.

    :param rounds: rounds of racing creates, from 1 to 2^32 - 1. The default finds a store that
        loses one race in a hundred in six of seven probes.
    :param largest_object: size of the largest object to store, in bytes or as text such as "1MiB",
        from 1 KiB to 1 GiB. The probe holds it in memory.
    :param on_progress: called a few times a second with the steps done and all steps.
    :returns: results and reasons. A property that the store lacks raises no exception: check `ok`.
    :raises Invalid: if `rounds` or `largest_object` is out of its range, and as described in
        `siltstone.exceptions`.
    :raises Denied, Unavailable, Timeout: if the store cannot be listed, or refuses the first
        create.
    """
    store_options = hidden(store_options)
    largest = min(size_of(largest_object, "largest_object"), _LARGEST)
    given = (count_of(rounds, "rounds", 1, _MOST_ROUNDS), largest, on_progress)
    found = _native.probe(_text(url), _store(store_options), *given)
    properties = {each[0]: StoreProperty(*each) for each in found.pop("properties")}
    return StoreReport(properties=properties, left=tuple(found.pop("left")), **found)
