"""Commands that copy a database to another place, and make a copy a database of its own."""

from __future__ import annotations

import click

import siltstone
from siltstone.cli._common import (
    Place,
    _as_json,
    _example,
    _pairs,
    _print_json,
    _print_table,
    _progress,
)

_checkpoint = click.option(
    "-c",
    "--checkpoint",
    help="The state to copy: a checkpoint's id or name. Without it all that is durable now.",
)


@click.command(
    epilog=_example(
        "live.db export s3://bucket/backup",
        "s3://bucket/live export s3://bucket/nightly --checkpoint nightly",
    ),
)
@click.argument("to", metavar="TO")
@_checkpoint
@click.option(
    "--to-store-option",
    "to_store_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="As --store-option, for TO. Without any those of the source, where both are of one kind.",
)
@_as_json
@click.pass_obj
def export(
    session: Place,
    to: str,
    checkpoint: str | None,
    to_store_options: dict[str, str],
    as_json: bool,
) -> None:
    """Copies a state of the database to a mirror at TO, a URL or path.

    The mirror opens by itself and takes no writes until it is promoted. A second export to the same
    place moves only what is new. Repeated after it was interrupted, the command goes on.
    """
    with _progress("export", "bytes") as on_progress:
        report = siltstone.admin.export(
            session.url,
            to,
            checkpoint=checkpoint,
            store_options=session.store_options,
            to_store_options=to_store_options or None,
            on_progress=on_progress,
        )
    _print_report("export", report, as_json)


@click.command(
    "import",
    epilog=_example("live.db import s3://bucket/backup"),
)
@click.argument("from_", metavar="FROM")
@_checkpoint
@click.option(
    "--from-store-option",
    "from_store_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="As --store-option, for FROM. Without any those of --path, where both are of one kind.",
)
@_as_json
@click.pass_obj
def import_(
    session: Place,
    from_: str,
    checkpoint: str | None,
    from_store_options: dict[str, str],
    as_json: bool,
) -> None:
    """Makes a database out of what lies at FROM, a URL or path: a mirror, or any other.

    --path is where it is to be. All of it is copied. Repeated after it was interrupted, the command
    goes on.
    """
    with _progress("import", "bytes") as on_progress:
        report = siltstone.admin.import_(
            session.url,
            from_,
            checkpoint=checkpoint,
            store_options=session.store_options,
            from_store_options=from_store_options or None,
            on_progress=on_progress,
        )
    _print_report("import", report, as_json)


@click.command(epilog=_example("backup.db promote"))
@_as_json
@click.pass_obj
def promote(session: Place, as_json: bool) -> None:
    """Makes a mirror a database like others: it takes writes, and no exports any more."""
    siltstone.admin.promote(session.url, store_options=session.store_options)
    if as_json:
        _print_json({"promoted": session.url})


def _print_report(title: str, report: siltstone.admin.ExportReport, as_json: bool) -> None:
    if as_json:
        _print_json(report.to_dict())
    else:
        _print_table(title, report.to_dict().items())
