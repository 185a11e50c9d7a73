"""Commands that create, refresh, delete and list checkpoints."""

from __future__ import annotations

import sys
from typing import Any

import click

import siltstone
from siltstone.cli._common import Place, Span, _as_json, _example, _print_json, _print_table
from siltstone.exceptions import Invalid

_LIFETIME = (
    "Lifetime of the checkpoint: seconds, or text in years, days, h, min and s, such as"
    " '7days 30min 10s'. Default: until it is deleted."
)
_ID = "Id or name of the checkpoint, such as 01740ee5-6459-44af-9a45-85deb6e468e3."


def _facts(given: tuple[str, ...]) -> dict[str, str]:
    pairs = (one.partition("=") for one in given)
    facts = {name: value for name, equals, value in pairs if equals}
    if len(facts) != len(given):
        raise Invalid("--metadata has the form NAME=VALUE, and each name is given once")
    for one in given:
        one.encode()  # raises what the program reports as a wrong call
    return facts


def _print(checkpoint: siltstone.Checkpoint, as_json: bool) -> None:
    if as_json:
        _print_json(checkpoint.to_dict())
    elif sys.stdout.isatty():
        _print_table("checkpoint", _rows(checkpoint))
    else:
        # The id alone, for scripts: `id=$(siltstone … create-checkpoint)`.
        click.echo(str(checkpoint.id))


def _rows(checkpoint: siltstone.Checkpoint) -> list[tuple[str, Any]]:
    plain = checkpoint.to_dict()
    facts = plain.pop("metadata")
    plain["expires"] = plain["expires"] or "never"
    rows = [(name, value) for name, value in plain.items() if value is not None]
    return rows + [(f"metadata {name}", value) for name, value in facts.items()]


@click.command(
    "create-checkpoint",
    epilog=_example(
        "example.db create-checkpoint --name before-migration",
        "s3://bucket/db create-checkpoint --lifetime '7days 30min 10s'",
    ),
)
@click.option("-l", "--lifetime", type=Span(), help=_LIFETIME)
@click.option(
    "-s",
    "--source",
    help="Keep the state of this checkpoint, given by id or name. Default: the durable state.",
)
@click.option("--name", help="Name of the checkpoint, unique in the database.")
@click.option(
    "--metadata", multiple=True, metavar="NAME=VALUE", help="Attach metadata. Repeatable."
)
@_as_json
@click.pass_obj
def create_checkpoint(
    session: Place,
    lifetime: float | None,
    source: str | None,
    name: str | None,
    metadata: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a checkpoint, and print its id.

    The checkpoint keeps the current state readable. A writer may be open at the same time: the
    checkpoint includes all writes that are durable.
    """
    made = siltstone.admin.create_checkpoint(
        session.url,
        lifetime=lifetime,
        source=source,
        name=name,
        metadata=_facts(metadata),
        store_options=session.store_options,
    )
    _print(made, as_json)


@click.command(
    "refresh-checkpoint",
    epilog=_example("example.db refresh-checkpoint --id nightly --lifetime 2days"),
)
@click.option("-i", "--id", "checkpoint", required=True, help=_ID)
@click.option("-l", "--lifetime", type=Span(), help=_LIFETIME)
@_as_json
@click.pass_obj
def refresh_checkpoint(
    session: Place, checkpoint: str, lifetime: float | None, as_json: bool
) -> None:
    """Set the lifetime of a checkpoint, counted from now."""
    made = siltstone.admin.refresh_checkpoint(
        session.url, checkpoint, lifetime=lifetime, store_options=session.store_options
    )
    _print(made, as_json)


@click.command(
    "delete-checkpoint", epilog=_example("example.db delete-checkpoint --id before-migration")
)
@click.option("-i", "--id", "checkpoint", required=True, help=_ID)
@_as_json
@click.pass_obj
def delete_checkpoint(session: Place, checkpoint: str, as_json: bool) -> None:
    """Delete a checkpoint.

    The garbage collector then deletes the objects that only this checkpoint needed.
    """
    siltstone.admin.delete_checkpoint(session.url, checkpoint, store_options=session.store_options)
    if as_json:
        _print_json({"deleted": checkpoint})


@click.command(
    "list-checkpoints",
    epilog=_example("example.db list-checkpoints", "example.db list-checkpoints --json | jq .id"),
)
@click.option("--name", help="List only the checkpoint with this name.")
@click.option(
    "--all", "processes", is_flag=True, help="Include the checkpoints of the writer and of readers."
)
@_as_json
@click.pass_obj
def list_checkpoints(session: Place, name: str | None, processes: bool, as_json: bool) -> None:
    """List the checkpoints of the database, oldest first.

    The writer and readers create and delete checkpoints for their own reads; --all lists these too.
    With --json each line is one JSON object.
    """
    found = siltstone.admin.list_checkpoints(
        session.url, name=name, processes=processes, store_options=session.store_options
    )
    if as_json:
        for one in found:
            _print_json(one.to_dict())
    elif sys.stdout.isatty():
        rows: list[tuple[str, Any]] = []
        for one in found:
            rows += [(one.name or str(one.id), None), *_rows(one)]
        _print_table("checkpoints", rows)
    else:
        for one in found:
            expires = "never" if one.expires is None else one.expires.isoformat()
            columns = (str(one.id), str(one.manifest_id), one.created.isoformat(), expires)
            click.echo("\t".join((*columns, one.name or "", one.owner)))
