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
    _told,
    _until_stopped,
)

_F = TypeVar("_F", bound=Callable[..., Any])


def _named_options(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals:
            raise click.BadParameter("an option is NAME=VALUE")
        try:
            options[name] = json.loads(text)
        except ValueError:
            # A codec may be called none; any other option that is none has no value.
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


_options = _options_as("An option of compaction, by name: max_compactions=2.")


def _teller(as_json: bool) -> Callable[[admin.Compaction | admin.Merged | Exception], None]:
    """Prints what a compactor did: a line, or one JSON object each; troubles on standard error."""

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
    """Merges all tables into one sorted run, without a writer; prints a line for what was done.

    A compactor that runs beside it is stopped; the writer is not.
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
    help="Leave work for so many workers in other processes.",
)
@click.option("--worker", is_flag=True, help="Work for a compactor that runs elsewhere.")
@_options
@_as_json
@click.pass_obj
def run_compactor(
    session: Place, workers: int, worker: bool, options: dict[str, Any], as_json: bool
) -> None:
    """Compacts in this process until it is stopped; prints a line for every compaction.

    Ctrl-C and SIGTERM end it in order, with status 0. Another compactor that starts stops this one,
    which exits with 1; the writer goes on.
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
