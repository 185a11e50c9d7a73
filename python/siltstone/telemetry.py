"""Figures of a handle for monitoring systems, as OpenTelemetry instruments.

For Prometheus use `Stats.to_prometheus`; for other systems `metrics()` returns a dict. This module
needs the extra ``siltstone[otel]`` (`opentelemetry-api`), which is imported only by `observe`.
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
"""Units in the notation of OpenTelemetry. Other units are written in braces: `{requests}`."""

_FRESH_SECONDS = 0.5


class Observed(Protocol):
    """A handle with figures: a Database or a Reader."""

    def metrics(self) -> dict[str, float]:
        """Returns the figures by name."""


def observe(
    handle: Observed, meter: Any = None, *, attributes: Mapping[str, str] | None = None
) -> None:
    """Registers an observable instrument for every figure of a Database or a Reader.

    A counter of `Stats` becomes an observable counter, any other figure an observable gauge. The
    name is `siltstone.` and the name in `Stats`; the unit is that of `UNITS`. The figures are read
    from memory when the metrics reader collects them. A closed handle reports no values.

    :param meter: an `opentelemetry.metrics.Meter`; None: the meter `siltstone` of the global
        provider.
    :param attributes: attributes of every figure, for example to tell databases apart.
    :raises ImportError: if `opentelemetry-api` is not installed.
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
    """Figures that are read once for all instruments, which are asked one after the other."""

    def __init__(self, handle: Observed) -> None:
        self._handle = handle
        self._lock = threading.Lock()
        self._taken = -1.0
        self._figures: dict[str, float] = {}

    def value(self, name: str) -> float | None:
        """Returns one figure; None if the handle is closed."""
        with self._lock:
            if time.monotonic() - self._taken > _FRESH_SECONDS:
                try:
                    self._figures = self._handle.metrics()
                except Closed:
                    self._figures = {}
                self._taken = time.monotonic()
            return self._figures.get(name)
