"""Commands that compact without a writer."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import click

from siltstone import admin
from siltstone.cli._common import (
    Place,
    _as_json,
    _example,
    _print_json,
    _progress,
    _until_stopped,
)
from siltstone.cli._remedies import _told

_F = TypeVar("_F", bound=Callable[..., Any])


def _named_options(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter("an option has the form NAME=VALUE")
        if name in options:
            raise click.BadParameter(f"{name} is given twice")
        try:
            options[name] = json.loads(text)
        except ValueError:
            # `none` is the name of a codec. For any other option it means: no value.
            options[name] = None if text == "none" and name != "compression" else text
    return options


def _options_as(text: str) -> Callable[[_F], _F]:
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        callback=_named_options,
        help=text,
    )


_options = _options_as("Set an option of compaction, such as max_compactions=2.")


def _teller(as_json: bool) -> Callable[[admin.Compaction | admin.Merged | Exception], None]:
    """Prints each event as a line or as a JSON object, and each error on standard error."""

    def told(what: admin.Compaction | admin.Merged | Exception) -> None:
        if isinstance(what, Exception):
            click.echo(f"Error: {_told(what)}", err=True)
            return
        if as_json:
            numbers = asdict(what)
            del numbers["line"]
            _print_json(numbers)
        else:
            click.echo(what.line)
        sys.stdout.flush()

    return told


@click.command(
    epilog=_example(
        "example.db compact", "example.db compact --json --option target_sst_bytes=64MiB"
    )
)
@_options
@_as_json
@click.pass_obj
def compact(session: Place, options: dict[str, Any], as_json: bool) -> None:
    """Merge all tables into one sorted run.

    The command prints one line for each compaction. It needs no writer. It stops another compactor
    of the database, but not the writer.
    """
    with _progress("compact", "bytes") as on_progress:
        done = admin.compact(
            session.url,
            options=options,
            store_options=session.store_options,
            merge_operator=session.merge_operator,
            on_event=_teller(as_json),
            on_progress=on_progress,
        )
    if not done and not as_json:
        click.echo("nothing to compact")


@click.command(
    "run-compactor",
    epilog=_example(
        "s3://bucket/db run-compactor",
        "s3://bucket/db run-compactor --workers 2",
        "s3://bucket/db run-compactor --worker",
    ),
)
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Number of workers in other processes to share the work with.",
)
@click.option("--worker", is_flag=True, help="Run as a worker of a compactor in another process.")
@_options
@_as_json
@click.pass_obj
def run_compactor(
    session: Place, workers: int, worker: bool, options: dict[str, Any], as_json: bool
) -> None:
    """Run a compactor in this process until it is stopped.

    The command prints one line for each compaction. Ctrl-C and SIGTERM end it in order, with status
    0. If another compactor of the database starts, this one exits with status 1. The writer is not
    affected.
    """
    if worker and workers:
        raise click.UsageError("--worker and --workers exclude each other")
    with _until_stopped():
        admin.run_compactor(
            session.url,
            options=options,
            store_options=session.store_options,
            merge_operator=session.merge_operator,
            workers=workers,
            worker=worker,
            on_event=_teller(as_json),
        )
