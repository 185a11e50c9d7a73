"""The table: medians, ratios and bounds, as Markdown."""

from __future__ import annotations

import datetime as dt
import os
import platform
from collections.abc import Iterator

from cases import BEYOND_ROWS, CASES, Bound, Case
from engines import engines
from machine import commit, processor
from samples import Samples

STAGE_TEXTS = {
    "puts": "empty",
    "arrow": "empty",
    "load": "empty",
    "left": "as loaded",
    "tables": "in SSTs",
    "mixed": "in SSTs, written to",
    "ordered": "empty",
    "apart": "",
}
HEAD = """# Results

Written by `make bench`; what is measured and how stands in
[RFC 0010](../rfcs/0010-benches.md). Times are medians of rounds that go around the engines; a ratio
is the peer's time divided by Siltstone's: above 1, Siltstone is faster. Siltstone has its default
options, the peers are set up at their best.
"""


def report(samples: Samples, rows: int, names: list[str]) -> str:
    """The whole text."""
    parts = [HEAD, *_machine(rows, names), "", *_table(samples, names), ""]
    parts += ["Where the rows were:", ""]
    parts += [f"- {stage}: {state}" for stage, state in _states(samples)]
    missed = [line for case in CASES for line in _missed(samples, case)]
    parts += ["", "Not met:" if missed else "Every bound that was measured is met.", ""]
    return "\n".join([*parts, *missed]).rstrip() + "\n"


def _states(samples: Samples) -> Iterator[tuple[str, str]]:
    for place, state in samples.states.items():
        stage, engine = place.split("/")
        if state:
            yield f"{engine}, {STAGE_TEXTS[stage]}", state


def _machine(rows: int, names: list[str]) -> list[str]:
    now = dt.datetime.now(tz=dt.UTC)
    kinds = engines()
    versions = ", ".join(f"{name} {kinds[name]().version()}" for name in names)
    return [
        f"- Rows: {rows:,}, of 16 B keys and 100 B values, in a local folder",
        f"- Machine: {os.cpu_count()} cores, {processor()}",
        f"- Load of the last 15 minutes, the run itself included: {os.getloadavg()[2]:.1f}",
        f"- System: {platform.system()} {platform.release()}, Python {platform.python_version()}",
        f"- Commit: {commit()}, {now:%Y-%m-%d %H:%M} UTC",
        f"- Packages: {versions}",
    ]


def _table(samples: Samples, names: list[str]) -> list[str]:
    peers = [name for name in names if name != "siltstone"]
    head = ["case", "state", *names, *[f"x {name}" for name in peers], "must hold", "met"]
    lines = [_line(head), _line(["---", "---"] + ["--:"] * (len(names) + len(peers)) + ["---"] * 2)]
    for case in CASES:
        own = samples.median(case.id, "siltstone")
        if own is None:
            continue
        cells = [case.text, STAGE_TEXTS[case.stage], quantity(own, case.unit)]
        cells += [quantity(_peer(samples, case, name), case.unit) for name in peers]
        cells += [_ratio(_peer(samples, case, name), own) for name in peers]
        limits = _bounds(samples, case)
        cells.append("; ".join(_bound_text(bound, case) for bound in limits))
        cells.append(", ".join(_verdict(samples, case, bound) for bound in limits))
        lines.append(_line(cells))
    return lines


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _peer(samples: Samples, case: Case, name: str) -> float | None:
    place = f"{case.compared_with}/{case.stage}" if case.compared_with else case.id
    return samples.median(place, name)


def quantity(amount: float | None, unit: str) -> str:
    """A median with its unit, three digits of it."""
    if amount is None:
        return ""
    if unit == "bytes":
        return f"{amount / (1 << 20):.0f} MiB"
    for size, text in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if amount >= size:
            return f"{amount / size:.3g} {text}"
    return f"{amount:.3g} ns"


def _ratio(peer: float | None, own: float) -> str:
    return "" if peer is None else f"{peer / own:.2f}" if peer < own * 10 else f"{peer / own:.0f}"


def _bounds(samples: Samples, case: Case) -> tuple[Bound, ...]:
    limit = samples.limits.get(case.id)
    bounds = case.beyond if case.beyond and samples.rows >= BEYOND_ROWS else case.bounds
    return bounds if limit is None else (*bounds, Bound(limit=limit))


def _bound_text(bound: Bound, case: Case) -> str:
    if bound.limit is not None:
        return f"at most {quantity(bound.limit, case.unit)}"
    return f"{bound.factor:g} x {' / '.join(bound.peers)}"


def _verdict(samples: Samples, case: Case, bound: Bound) -> str:
    own = samples.median(case.id, "siltstone")
    if own is None:
        return ""
    if bound.limit is not None:
        return "met" if own <= bound.limit else "**not met**"
    found = [_peer(samples, case, name) for name in bound.peers]
    times = [peer for peer in found if peer is not None]
    if not times:
        return "no peer"
    return "met" if min(times) >= bound.factor * own else "**not met**"


def _missed(samples: Samples, case: Case) -> Iterator[str]:
    own = samples.median(case.id, "siltstone")
    for bound in _bounds(samples, case):
        if own is None or "not" not in _verdict(samples, case, bound):
            continue
        where = f"{case.text} {STAGE_TEXTS[case.stage]}".strip()
        if bound.limit is not None:
            yield f"- {where}: {quantity(own, case.unit)}, {_bound_text(bound, case)}"
            continue
        found = [_peer(samples, case, name) for name in bound.peers]
        best = min(peer for peer in found if peer is not None)
        yield f"- {where}: {best / own:.2f} x, wanted {_bound_text(bound, case)}"
