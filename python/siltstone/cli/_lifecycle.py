"""Commands that destroy a database, restore a checkpoint, and list versions and their history."""

from __future__ import annotations

import sys

import click

import siltstone
from siltstone.cli._common import Place, _as_json, _example, _print_json


def _agreed(question: str, yes: bool) -> None:
    """Asks for confirmation on a terminal; without a terminal `--yes` is required."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Standard input is not a terminal: add --yes to confirm.")
    if not click.confirm(question, err=True):
        raise click.Abort


@click.command(
    epilog=_example("example.db destroy --yes", "s3://bucket/db destroy --soft --yes"),
)
@click.option(
    "--soft",
    is_flag=True,
    help="Leave the deletion to a collector (gc, run-gc), after one day and after all checkpoints.",
)
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal."
)
@_as_json
@click.pass_obj
def destroy(session: Place, soft: bool, yes: bool, as_json: bool) -> None:
    """Destroy the database: delete all its objects.

    The command first fences an open writer. It fails while clones or user checkpoints need objects
    of the database; --soft waits for them. Afterwards a new database can be created at the place.
    A second call without --soft deletes the objects of a softly destroyed database immediately.
    """
    _agreed(f"Destroy the database at {session.url}?", yes)
    siltstone.destroy(session.url, soft=soft, store_options=session.store_options)
    if as_json:
        _print_json({"destroyed": session.url, "soft": soft})


@click.command(
    epilog=_example("example.db restore --checkpoint before-migration"),
)
@click.option(
    "-c",
    "--checkpoint",
    required=True,
    help="Id or name of the checkpoint, such as 01740ee5-6459-44af-9a45-85deb6e468e3.",
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation on a terminal.")
@_as_json
@click.pass_obj
def restore(session: Place, checkpoint: str, yes: bool, as_json: bool) -> None:
    """Restore the database to a checkpoint.

    The command first fences an open writer, and undoes all writes since the checkpoint. It deletes
    no checkpoint: to be able to undo the restore, create a checkpoint before it. On a terminal the
    command asks for confirmation.
    """
    if sys.stdin.isatty():
        _agreed(f"Undo all writes to {session.url} since the checkpoint {checkpoint}?", yes)
    siltstone.admin.restore(session.url, checkpoint, store_options=session.store_options)
    if as_json:
        _print_json({"restored": session.url, "checkpoint": checkpoint})


@click.command(
    epilog=_example("example.db versions", "example.db versions --json | jq .seq"),
)
@_as_json
@click.pass_obj
def versions(session: Place, as_json: bool) -> None:
    """List the versions that are still kept, oldest first.

    A line has the number, the time and the last sequence number of a version. With --json each line
    is one JSON object.
    """
    for one in siltstone.admin.versions(session.url, store_options=session.store_options):
        if as_json:
            _print_json(one.to_dict())
        else:
            click.echo(f"{one.id}\t{one.time.isoformat()}\t{one.seq}")


@click.command(
    epilog=_example("example.db history", "example.db history --json | jq .app"),
)
@_as_json
@click.pass_obj
def history(session: Place, as_json: bool) -> None:
    """List loads, ingest jobs, batches of streams, compactions and restores, oldest first.

    A line has the time, the kind, the application with its version, and the tables and rows that
    were added. The list covers the versions that are still kept. For earlier times it has the
    last version of each application, without a time.
    """
    for one in siltstone.admin.history(session.url, store_options=session.store_options):
        if as_json:
            _print_json(one.to_dict())
            continue
        time = "-" if one.time is None else one.time.isoformat()
        app = "-" if one.app is None else f"{one.app} {one.app_version}"
        size = "-" if one.tables is None else f"{one.tables} tables, {one.rows} rows"
        click.echo(f"{time}\t{one.kind}\t{app}\t{size}")
