"""The command about ingest jobs."""

from __future__ import annotations

import click

import siltstone
from siltstone.cli_parts import Place, _as_json, _example, _print_json


@click.command(
    "ingest-status",
    epilog=_example("example.db ingest-status 01ARZ3NDEKTSV4RRFFQ69G5FAV"),
)
@click.argument("job")
@_as_json
@click.pass_obj
def ingest_status(session: Place, job: str, as_json: bool) -> None:
    """Says how an ingest job stands: open, pending, adopted, refused, aborted or forgotten.

    JOB is its id, as `Job.id` has it. A job that is adopted is told with its sequence number, one
    that was refused with the reason.
    """
    stands = siltstone.ingest.status(session.url, job, store_options=session.store_options)
    if as_json:
        _print_json({"job": job, **stands.to_dict()})
        return
    told = [stands.state, stands.seq, stands.reason]
    click.echo("\t".join(str(one) for one in told if one is not None))
