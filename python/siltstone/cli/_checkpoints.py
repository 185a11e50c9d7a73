"""Commands about checkpoints, with the options that the design of checkpoints names."""

from __future__ import annotations

import sys
from typing import Any

import click

import siltstone
from siltstone.cli._common import Place, Span, _as_json, _example, _print_json, _print_table
from siltstone.exceptions import Invalid

_LIFETIME = (
    "After this long it may be collected: seconds, or years, days, h, min, s, as in '7days 30min"
    " 10s'. Without it the checkpoint lives until it is deleted."
)
_ID = "The checkpoint: its id (e.g. 01740ee5-6459-44af-9a45-85deb6e468e3) or its name."


def _facts(given: tuple[str, ...]) -> dict[str, str]:
    pairs = (one.partition("=") for one in given)
    facts = {name: value for name, equals, value in pairs if equals}
    if len(facts) != len(given):
        raise Invalid("--metadata takes NAME=VALUE, and each name once")
    return facts


def _print(checkpoint: siltstone.Checkpoint, as_json: bool) -> None:
    if as_json:
        _print_json(checkpoint.to_dict())
    elif sys.stdout.isatty():
        _print_table("checkpoint", _rows(checkpoint))
    else:
        # What a script takes on: `id=$(siltstone … create-checkpoint)`.
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
    help="A checkpoint, by id or name, whose state the new one keeps as well. Without it the"
    " checkpoint is of the state that is durable now.",
)
@click.option("--name", help="A name to find it by, unique in the database.")
@click.option("--metadata", multiple=True, metavar="NAME=VALUE", help="A fact to attach.")
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
    """Makes a checkpoint of the database's current state, and prints its id.

    A writer may be at work meanwhile: the checkpoint includes what is durable.
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
    """Lets a checkpoint live for a lifetime from now on."""
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
    """Deletes a checkpoint: what nothing else needs is collected from then on."""
    siltstone.admin.delete_checkpoint(session.url, checkpoint, store_options=session.store_options)
    if as_json:
        _print_json({"deleted": checkpoint})


@click.command(
    "list-checkpoints",
    epilog=_example("example.db list-checkpoints", "example.db list-checkpoints --json | jq .id"),
)
@click.option("--name", help="Only the one with this name.")
@click.option("--all", "processes", is_flag=True, help="Those too that processes keep.")
@_as_json
@click.pass_obj
def list_checkpoints(session: Place, name: str | None, processes: bool, as_json: bool) -> None:
    """Lists the checkpoints of the database, oldest first.

    Those that the writer and readers keep for their own reads come and go by themselves, and are
    listed with --all. In JSON each is an object on a line of its own.
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
