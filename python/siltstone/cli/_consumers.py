"""Commands about consumers of the change feed."""

from __future__ import annotations

import click

import siltstone
from siltstone.cli._common import Place, _as_json, _example, _print_json


@click.command(epilog=_example("example.db consumers", "example.db consumers --json"))
@_as_json
@click.pass_obj
def consumers(session: Place, as_json: bool) -> None:
    """List the consumers of the change feed.

    A line has the name, the acknowledged sequence number and the expiry. A consumer retains the log
    from its acknowledged position on. Each read extends its expiry. A consumer that has expired
    retains nothing.
    """
    for held in siltstone.changes.consumers(session.url, store_options=session.store_options):
        if as_json:
            told = {"name": held.name, "seq": held.seq, "wal_from": held.wal_from}
            _print_json({**told, "expires": held.expires, "most_bytes": held.most_bytes})
        else:
            expires = "never" if held.expires is None else held.expires.isoformat()
            click.echo(f"{held.name}\t{held.seq}\t{expires}")


@click.command("forget-consumer", epilog=_example("example.db forget-consumer index"))
@click.argument("name")
@_as_json
@click.pass_obj
def forget_consumer(session: Place, name: str, as_json: bool) -> None:
    """Remove a consumer and release the log that it retains."""
    siltstone.changes.forget(session.url, name, store_options=session.store_options)
    if as_json:
        _print_json({"forgotten": name})
