"""Commands that end a database, or take it back to a checkpoint."""

from __future__ import annotations

import sys

import click

import siltstone
from siltstone.cli._common import Place, _as_json, _example, _print_json


def _agreed(question: str, yes: bool) -> None:
    """Asks on a terminal; elsewhere nobody can answer, and --yes must say so."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody can be asked here: add --yes.")
    if not click.confirm(question, err=True):
        raise click.Abort


@click.command(
    epilog=_example("example.db destroy --yes", "s3://bucket/db destroy --soft --yes"),
)
@click.option(
    "--soft",
    is_flag=True,
    help="Leave the objects to a collector (gc, run-gc): it waits a day, and for checkpoints.",
)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can answer.")
@_as_json
@click.pass_obj
def destroy(session: Place, soft: bool, yes: bool, as_json: bool) -> None:
    """Ends the database and deletes what it holds.

    Whoever writes to it is ended first. It is refused while clones or checkpoints that somebody
    made need what it holds; --soft waits for them. Afterwards the place can be used again.
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
    help="The checkpoint: its id (e.g. 01740ee5-6459-44af-9a45-85deb6e468e3) or its name.",
)
@_as_json
@click.pass_obj
def restore(session: Place, checkpoint: str, as_json: bool) -> None:
    """Makes a checkpoint the current state again: what was written since is undone.

    Whoever writes to the database is ended first. Checkpoints stay: make one before, and the
    restore can be undone.
    """
    siltstone.admin.restore(session.url, checkpoint, store_options=session.store_options)
    if as_json:
        _print_json({"restored": session.url, "checkpoint": checkpoint})


@click.command(
    epilog=_example("example.db versions", "example.db versions --json | jq .seq"),
)
@_as_json
@click.pass_obj
def versions(session: Place, as_json: bool) -> None:
    """Lists the versions that are still kept, oldest first: number, time, last sequence number.

    In JSON each is an object on a line of its own.
    """
    for one in siltstone.admin.versions(session.url, store_options=session.store_options):
        if as_json:
            _print_json(one.to_dict())
        else:
            click.echo(f"{one.id}\t{one.time.isoformat()}\t{one.seq}")
