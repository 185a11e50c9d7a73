"""Commands that create a clone, and release the pin of a clone that is gone."""

from __future__ import annotations

import click

import siltstone
from siltstone.cli._common import Place, _as_json, _example, _print_json
from siltstone.cli._text import _decode, _in_form


@click.command(
    "clone",
    epilog=_example(
        "try.db clone --parent live.db",
        "s3://bucket/try clone --parent s3://bucket/live --checkpoint nightly",
        "half.db clone --parent whole.db --end m",
        "whole.db clone --parent half.db --parent-at other-half.db nightly",
    ),
)
@click.option(
    "--parent",
    "parents",
    multiple=True,
    metavar="URL",
    help="Database to clone. Repeatable: the clone has the rows of all parents, whose keys must not"
    " overlap.",
)
@click.option(
    "--parent-at",
    "parents_at",
    nargs=2,
    multiple=True,
    metavar="URL CHECKPOINT",
    help="Database to clone at its own checkpoint. Repeatable.",
)
@click.option(
    "--checkpoint",
    help="Checkpoint of each --parent, by id or name. Default: the state that is durable now.",
)
@click.option("--start", help="First key of the clone, inclusive.")
@click.option("--end", help="End key of the clone, exclusive.")
@_in_form
@_as_json
@click.pass_obj
def clone(
    session: Place,
    parents: tuple[str, ...],
    parents_at: tuple[tuple[str, str], ...],
    checkpoint: str | None,
    start: str | None,
    end: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Create a clone of one or more databases.

    --path is the place of the clone. The clone shares tables with its parents and copies none;
    later writes to a parent or to the clone do not affect the other. Repeat an interrupted command
    to resume it.
    """
    given = [*((url, checkpoint) for url in parents), *parents_at]
    if not given:
        raise click.UsageError("Missing option '--parent' or '--parent-at'.")
    if checkpoint is not None and not parents:
        raise click.UsageError("--checkpoint belongs to --parent; --parent-at has its own")
    siltstone.clone(
        session.url,
        parent=given,
        start=None if start is None else _decode(start, form),
        end=None if end is None else _decode(end, form),
        store_options=session.store_options,
    )
    if as_json:
        told = [{"parent": url, "checkpoint": at} for url, at in given]
        _print_json({"clone": session.url, "parents": told})


@click.command(
    "release-clone",
    epilog=_example(
        "live.db release-clone try.db",
        "live.db release-clone --force 01740ee5-6459-44af-9a45-85deb6e468e3",
    ),
)
@click.argument("gone", metavar="CLONE")
@click.option(
    "--force",
    is_flag=True,
    help="Release the pin without a check. A clone that still exists loses tables that it reads.",
)
@_as_json
@click.pass_obj
def release_clone(session: Place, gone: str, force: bool, as_json: bool) -> None:
    """Release the pin of a clone that was removed by hand.

    CLONE is the identity of the clone, its place, or the id of its pin. The command fails if the
    clone is still at the place that its pin names.
    """
    released = siltstone.admin.release_clone(
        session.url, gone, force=force, store_options=session.store_options
    )
    for one in released:
        if as_json:
            _print_json({"released": str(one.id), "clone": one.metadata.get("clone at")})
        else:
            click.echo(str(one.id))
