"""The command that makes a clone."""

from __future__ import annotations

import click

import siltstone
from siltstone.cli_parts import Place, _as_json, _example, _print_json


@click.command(
    "clone",
    epilog=_example(
        "try.db clone --parent live.db",
        "s3://bucket/try clone --parent s3://bucket/live --checkpoint nightly",
    ),
)
@click.option("--parent", required=True, metavar="URL", help="The database to begin with.")
@click.option(
    "--checkpoint",
    help="A checkpoint of the parent, by id or name. Without it the clone begins with what is"
    " durable now.",
)
@_as_json
@click.pass_obj
def clone(session: Place, parent: str, checkpoint: str | None, as_json: bool) -> None:
    """Makes a database that begins with what another one holds, and copies no table.

    --path is where it is to be. The two share tables, and each goes its own way. Repeated after it
    was interrupted, the command goes on where it stopped.
    """
    siltstone.clone(
        session.url, parent=parent, checkpoint=checkpoint, store_options=session.store_options
    )
    if as_json:
        _print_json({"clone": session.url, "parent": parent, "checkpoint": checkpoint})
