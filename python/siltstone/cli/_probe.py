"""The command that examines a store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

import siltstone
from siltstone.cli._common import (
    Place,
    Size,
    _as_json,
    _example,
    _print_json,
    _print_table,
    _progress,
)
from siltstone.cli._remedies import _in_our_words


@click.command(
    epilog=_example("s3://bucket/db probe", "s3://bucket/db probe --rounds 1000 --json | jq .ok")
)
@click.argument("url", required=False, metavar="[URL]")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Number of rounds of racing creates. More rounds find rarer races.",
)
@click.option(
    "--largest-object",
    type=Size(1 << 20),
    default="24MiB",
    show_default=True,
    help="Size of the largest object to store.",
)
@_as_json
@click.pass_obj
def probe(session: Place, url: str | None, rounds: int, largest_object: int, as_json: bool) -> None:
    """Examine whether a store has the properties that a database needs.

    URL is a place in the store, and can be given instead of --path: siltstone probe URL. The
    command creates objects below probe/ there, and deletes them. It does not touch a database at
    that place.

    The command exits with status 1 if a property that Siltstone needs failed, or could not be
    examined.
    """
    if url is not None and session.given_url is not None:
        raise click.UsageError("Give the place as URL or with --path, not both.")
    with _progress("probe", "steps") as on_progress:
        report = siltstone.admin.probe(
            session.url if url is None else url,
            rounds=rounds,
            largest_object=largest_object,
            store_options=session.store_options,
            on_progress=on_progress,
        )
    if as_json:
        _print_json(report.to_dict())
    else:
        _print_table(f"probe of {report.store}", _rows(report))
        for one in report.properties.values():
            _complain(one)
        if report.left:
            text = f"{len(report.left)} objects could not be deleted; the first is {report.left[0]}"
            click.echo(f"Warning: {text}", err=True)
    if not report.ok:
        raise SystemExit(1)


def _rows(report: siltstone.admin.StoreReport) -> Iterable[tuple[str, Any]]:
    for one in report.properties.values():
        yield one.name, one.result
    if report.clock_offset is not None:
        yield "clock_offset", f"{report.clock_offset:.3f} s"
    yield "largest_object", f"{report.largest_object} bytes"
    for operation, seconds in report.latency.items():
        yield f"latency of {operation}", f"{1000 * seconds:.2f} ms"
    yield "requests", report.requests


def _complain(one: siltstone.admin.StoreProperty) -> None:
    """Prints a needed property that did not pass as an error, and another failure as a warning."""
    if one.needed and one.result != "passed":
        click.echo(f"Error: {_in_our_words(str(one))}", err=True)
    elif one.result == "failed":
        click.echo(f"Warning: {_in_our_words(str(one))}", err=True)
