"""Figures of a handle for monitoring systems: OpenTelemetry's instruments.

For Prometheus `Stats.to_prometheus` gives the text; for everything else `metrics()` gives a dict.
Needs the extra ``siltstone[otel]`` (`opentelemetry-api`), of which nothing is imported without
`observe`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from siltstone import _native
from siltstone.exceptions import Closed

__all__ = ["UNITS", "Observed", "observe"]

UNITS = {"bytes": "By", "seconds": "s", "ratio": "1", "price": "1"}
"""Units as OpenTelemetry writes them; every other one stands in braces: `{requests}`."""

_FRESH_SECONDS = 0.5


class Observed(Protocol):
    """What has figures: a Database or a Reader."""

    def metrics(self) -> dict[str, float]:
        """The figures by name."""


def observe(
    handle: Observed, meter: Any = None, *, attributes: Mapping[str, str] | None = None
) -> None:
    """Registers an observable instrument for every figure of a Database or a Reader.

    A figure that only grows becomes an observable counter, every other an observable gauge; names
    are `siltstone.` and the name in `Stats`, units are `UNITS`. They are read when the reader of
    the metrics asks, and asked of nobody but memory. Once the handle is closed they fall silent.

    :param meter: an `opentelemetry.metrics.Meter` of your own; by default that of the global
        provider, named `siltstone`.
    :param attributes: stand beside every figure, so that databases can be told apart.
    :raises ImportError: `opentelemetry-api` is not installed.
    """
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter  # noqa: PLC0415

    meter = get_meter("siltstone", _native.__version__) if meter is None else meter
    figures = _Figures(handle)
    beside = dict(attributes or {})

    def of(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def read(_: CallbackOptions) -> Iterable[Observation]:
            value = figures.value(name)
            return () if value is None else (Observation(value, beside),)

        return read

    for name, _, unit, meaning, grows in _native.stat_table():
        create: Any = meter.create_observable_counter if grows else meter.create_observable_gauge
        create(
            f"siltstone.{name}",
            callbacks=[of(name)],
            unit=UNITS.get(unit, "{" + unit.replace(" ", "_") + "}"),
            description=meaning,
        )


class _Figures:
    """One look for all instruments: they are asked one after the other."""

    def __init__(self, handle: Observed) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._taken = -1.0
        self._figures: dict[str, float] = {}

    def value(self, name: str) -> float | None:
        """One figure; None when the handle is closed."""
        with self._lock:
            if time.monotonic() - self._taken > _FRESH_SECONDS:
                try:
                    self._figures = self._handle.metrics()
                except Closed:
                    self._figures = {}
                self._taken = time.monotonic()
            return self._figures.get(name)
