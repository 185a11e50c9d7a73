"""Commands that export a database to a mirror, import one, and promote a mirror."""

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
    help="Checkpoint to copy, by id or name. Default: the state that is durable now.",
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
    help="Store option for TO. Default: those of the source, if both stores are of the same kind.",
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
    """Export the database to a mirror.

    TO is the URL or path of the mirror. The mirror does not depend on the source. It is read-only
    until it is promoted. A second export to the same place copies only new tables. Repeat an
    interrupted command to resume it.
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
    help="Store option for FROM. Default: those of --path, if both stores are of the same kind.",
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
    """Import a mirror or a database.

    FROM is the URL or path of the source. --path is the place of the new database. All tables are
    copied. Repeat an interrupted command to resume it.
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
    """Promote a mirror to a writable database.

    A promoted mirror accepts writes, and refuses further exports to it.
    """
    siltstone.admin.promote(session.url, store_options=session.store_options)
    if as_json:
        _print_json({"promoted": session.url})


def _print_report(title: str, report: siltstone.admin.ExportReport, as_json: bool) -> None:
    if as_json:
        _print_json(report.to_dict())
    else:
        _print_table(title, report.to_dict().items())
