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
        "half.db clone --parent whole.db --end m",
    ),
)
@click.option("--parent", required=True, metavar="URL", help="The database to begin with.")
@click.option(
    "--checkpoint",
    help="A checkpoint of the parent, by id or name. Without it the clone begins with what is"
    " durable now.",
)
@click.option("--start", help="First key to take over.")
@click.option("--end", help="Key to stop before.")
@_as_json
@click.pass_obj
def clone(
    session: Place,
    parent: str,
    checkpoint: str | None,
    start: str | None,
    end: str | None,
    as_json: bool,
) -> None:
    """Makes a database that begins with what another one holds, and copies no table.

    --path is where it is to be. The two share tables, and each goes its own way. Repeated after it
    was interrupted, the command goes on where it stopped.
    """
    siltstone.clone(
        session.url,
        parent=parent,
        checkpoint=checkpoint,
        start=_key(start),
        end=_key(end),
        store_options=session.store_options,
    )
    if as_json:
        _print_json({"clone": session.url, "parent": parent, "checkpoint": checkpoint})


def _key(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")
