"""Runs the conformance checks on real servers, which it starts and stops.

    run.py [--effort N] [--results FILE] [STORE …]

Without names it runs all stores. A store whose server is not on this machine is skipped, with the
way to get it. ``--results`` writes the figures into a file, in which the rows of skipped stores
stay; ``page.py`` makes ``docs/conformance.md`` from it.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import checks
import siltstone
from servers import STORES, Missing, RunningStore

NOT_SHARED = "one process has the store"


def checked(store: RunningStore, effort: int, seed: int) -> dict[str, Any]:
    """The figures of all checks that passed; the failures are under `failed`."""
    row: dict[str, Any] = {"version": store.version, "siltstone": siltstone.__version__}
    row["date"] = dt.datetime.now(dt.UTC).date().isoformat()
    row["effort"] = effort
    runs = {
        "probe": lambda: checks.probe(store, effort),
        "model": lambda: checks.model(store, effort, seed),
        "kills": lambda: checks.kills(store, effort, seed),
        "fencing": lambda: checks.fencing(store, effort, seed),
    }
    for name, run in runs.items():
        if not store.shared and name in {"kills", "fencing"}:
            row[name] = NOT_SHARED
            continue
        began = time.monotonic()
        try:
            row[name] = run()
        except Exception as error:  # noqa: BLE001 - the other checks are run
            row.setdefault("failed", []).append(f"{name}: {error!r}")
            print(f"  {name}: FAILED, {error!r}", flush=True)
            continue
        print(f"  {name}: passed, {time.monotonic() - began:.1f} s, {row[name]}", flush=True)
    return row


def main() -> int:
    """Runs the stores as the module says. Returns the exit status."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--effort", type=int, default=20)
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("--results", type=Path)
    arguments.add_argument("names", nargs="*", choices=[*STORES, []])
    given = arguments.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    rows: dict[str, Any] = {}
    if given.results is not None and given.results.exists():
        rows = json.loads(given.results.read_text())
    failed, skipped = [], {}
    for name in given.names or STORES:
        print(f"--- {name}", flush=True)
        try:
            with STORES[name]() as store:
                print(f"  {store.version}, seed {seed}", flush=True)
                rows[name] = checked(store, given.effort, seed)
                failed.extend(f"{name}: {text}" for text in rows[name].get("failed", []))
        except Missing as missing:
            skipped[name] = str(missing)
        except Exception as error:  # noqa: BLE001 - the next store is run
            failed.append(f"{name}: {error}")
    print("---")
    for name, how in skipped.items():
        print(f"skipped {name}; get it by: {how}")
    for line in failed:
        print(f"FAILED {line}")
    if given.results is not None:
        ordered = {name: rows[name] for name in STORES if name in rows}
        given.results.write_text(json.dumps(ordered, indent=2) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
