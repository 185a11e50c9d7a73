"""Makes ``docs/conformance.md`` from the results of ``run.py``, and checks that it is current.

    page.py [--check]

The stored results are ``tests/stores/results.json``. Rows of stores that cannot be run here come
from the documents of their vendors, and say so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
PAGE = ROOT / "docs" / "conformance.md"

TITLES = {
    "folder": "local folder",
    "memory": "memory of one process",
    "moto": "S3 protocol: moto, one request at a time",
    "versitygw": "S3 protocol: versitygw over a folder",
    "azurite": "Azure Blob protocol: Azurite",
    "gcs": "GCS XML protocol",
    "sqlite": "S3 protocol without conditions, with records in SQLite",
    "postgresql": "S3 protocol without conditions, with records in PostgreSQL",
    "mariadb": "S3 protocol without conditions, with records in MariaDB",
    "dynamodb": "S3 protocol without conditions, with records in DynamoDB: moto",
}

# The store; conditional creates; remark. From the vendors' documents.
DOCUMENTED = [
    (
        "Amazon S3, general purpose",
        "`If-None-Match: *` since August 2024; a racing create gets 409 or 412",
        "reads and listings are strong since December 2020",
    ),
    (
        "Amazon S3 Express One Zone",
        "as general purpose",
        "listings are not in key order: Siltstone sorts them; credentials are those of a session",
    ),
    (
        "MinIO",
        "`If-None-Match: *`, atomic",
        "the community's repository is archived, and faults are no longer corrected",
    ),
    (
        "Cloudflare R2",
        "`If-None-Match: *`",
        "a copy with a condition has a header of its own, which Siltstone does not use",
    ),
    (
        "Tigris",
        "`If-None-Match: *`",
        "its latency of writes varies from day to day",
    ),
    (
        "Ceph, RADOS gateway",
        "`If-None-Match: *`",
        "a release of July 2026 inverted the condition in its POSIX driver: probe your release",
    ),
    (
        "Google Cloud Storage",
        "`x-goog-if-generation-match: 0`",
        "one write per second and object name; Siltstone creates each name once",
    ),
    (
        "Azure Blob Storage",
        "`If-None-Match: *`",
        "no ranges counted from the end; Siltstone uses none",
    ),
]

HEAD = """\
# Conformance of stores

`tests/stores/page.py` makes this page from `tests/stores/results.json`. Run `make stores` to repeat
all runs: it starts each server on this machine, runs the checks below, and names the servers that
are missing with the command that gets them. `make test` repeats the folder and moto.

## Stores that were run

"""

MIDDLE = """
The checks, each with a database of its own:

- **probe**: the properties that [`siltstone probe`](howto-probe.md) examines: reads and listings
  after writes, second and racing creates, ranges, copies, deletes, large objects.
- **model**: random puts, deletes, range deletes, batches, reads, scans, flushes, compactions and
  openings, compared with a dict; then a collection, and a check of every byte.
- **kills**: a writer process is killed with SIGKILL at random moments. Each later writer and reader
  must find all acknowledged writes, as a prefix of the history.
- **fencing**: two writer processes take over from each other as soon as they are fenced. No write
  may be acknowledged that a later writer does not recover.

A fault that needs a rare interleaving can pass these checks. Conditional writes have to be atomic
by the design of the store: a probe cannot prove that.

## Stores that were not run

These rows come from the vendors' documents. No run of Siltstone has confirmed them: check your
bucket with [`siltstone probe`](howto-probe.md), or from Python:

```python
import siltstone

report = siltstone.admin.probe("here.db", rounds=5, largest_object=1 << 20)
assert report.ok
for name, found in report.properties.items():
    print(name, found.result)
```

"""

TAIL = """
Stores without conditional writes, or with conditional writes that are not atomic, need a
[transactional store](howto-transactional-store.md) beside them.
"""


def probed(figures: dict[str, Any]) -> str:
    """The cell of a probe."""
    results = figures["properties"].values()
    passed = sum(result == "passed" for result in results)
    others = [name for name, result in figures["properties"].items() if result != "passed"]
    told = ", ".join(f"{name} {figures['properties'][name]}" for name in others)
    return f"{passed} of {len(results)} passed" + (f" ({told})" if told else "")


def cells(row: dict[str, Any]) -> list[str]:
    """The cells of a store that was run."""
    shown = {
        "probe": probed,
        "model": lambda made: f"{made['operations']:,} operations, {made['reopened']} openings",
        "kills": lambda made: f"{made['kills']} kills, {made['acknowledged']:,} writes",
        "fencing": lambda made: f"{made['takeovers']} takeovers, {made['acknowledged']:,} writes",
    }
    told = []
    for name, show in shown.items():
        made = row.get(name, "**failed**")
        told.append(made if isinstance(made, str) else show(made))
    return [row["version"], *told, row["date"]]


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table of Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(results: dict[str, Any]) -> str:
    """The page."""
    heads = ["store", "version", "probe", "model", "kills", "fencing", "date"]
    none = ["not run yet", *[""] * (len(heads) - 2)]
    run = [[TITLES[name], *(cells(results[name]) if name in results else none)] for name in TITLES]
    rest = ["store", "conditional creates", "remark", "source"]
    source = "from its documents, not run"
    documented = [[*row, source] for row in DOCUMENTED]
    return HEAD + table(heads, run) + MIDDLE + table(rest, documented) + TAIL


def main() -> int:
    """Writes or checks the page. Returns the exit status."""
    made = page(json.loads(RESULTS.read_text()))
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text() == made else 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
