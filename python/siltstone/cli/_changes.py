"""Commands that print the change feed, and list and remove its consumers."""

from __future__ import annotations

import contextlib
from uuid import UUID

import click

import siltstone
from siltstone.cli._common import Place, _as_json, _example, _print_json
from siltstone.cli._text import _fields, _in_form, _print_line

_WORDS = ("oldest", "latest", "snapshot")
_PREFIX = "c1-"
"""The beginning of each token of a feed."""


@click.command(
    epilog=_example(
        "example.db changes --since oldest --limit 10",
        "example.db changes --since c1-… --json",
        "example.db changes --consumer index --since oldest --acknowledge",
    )
)
@click.option(
    "--since",
    help="Start: a token, oldest, latest, snapshot, or the id or name of a checkpoint. Default: "
    "the position of --consumer, else latest.",
)
@click.option(
    "--until", metavar="TOKEN", help="End at this token. Default: the last durable commit."
)
@click.option("--consumer", metavar="NAME", help="Retain unacknowledged changes under this name.")
@click.option("--acknowledge", is_flag=True, help="Acknowledge the printed changes of --consumer.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help="End after the commit that reaches this number of rows.",
)
@_in_form
@_as_json
@click.pass_obj
def changes(
    session: Place,
    since: str | None,
    until: str | None,
    consumer: str | None,
    acknowledge: bool,
    limit: int | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Print the change feed, in commit order.

    A line has the sequence number, time, kind, key and value, separated by tabs. Keys and values
    are escaped as by `scan`. The last line has a token; --since TOKEN continues there. Without
    --since and --consumer only the token of the last durable commit is printed.

    With --since snapshot the first line has the id of a new checkpoint, which has the state before
    the changes: read it with `clone --checkpoint` or `export --checkpoint`. It expires after a day,
    also if the consumer is forgotten; `delete-checkpoint` deletes it earlier.
    """
    if acknowledge and consumer is None:
        raise click.UsageError("--acknowledge needs --consumer: only a consumer acknowledges")
    feed = siltstone.changes.begin(
        session.url,
        since=_start(session, since),
        until=until,
        consumer=consumer,
        store_options=session.store_options,
    )
    if feed.checkpoint is not None and since == "snapshot":
        _print_pair("checkpoint", str(feed.checkpoint.id), as_json)
    printed = 0
    while limit is None or printed < limit:
        rows = feed.rows(1000 if limit is None else min(1000, limit - printed))
        if rows is None:
            break
        printed += len(rows)
        for row in rows:
            _print_row(row, form, as_json)
    if acknowledge:
        feed.acknowledge()
    _print_pair("token", feed.token, as_json)


def _start(session: Place, since: str | None) -> str | UUID | None:
    """Returns the start of a feed: a word, a token, or the id of a checkpoint.

    :raises Invalid: if the text is none of these, and not the name of a checkpoint.
    """
    if since is None or since in _WORDS or since.startswith(_PREFIX):
        return since
    with contextlib.suppress(ValueError):
        return UUID(since)
    found = siltstone.admin.list_checkpoints(
        session.url, name=since, store_options=session.store_options
    )
    if not found:
        text = f"{since!r} is neither a token of a change feed nor the id or name of a checkpoint"
        remedy = "`siltstone --path URL list-checkpoints` lists the checkpoints"
        raise siltstone.Invalid(f"{text}; {remedy}")
    return found[0].id


def _print_pair(name: str, value: str, as_json: bool) -> None:
    if as_json:
        _print_json({name: value})
    else:
        click.echo(f"{name}\t{value}")


def _print_row(row: siltstone.changes.Row, form: str | None, as_json: bool) -> None:
    if as_json:
        told = {"seq": row.seq, "time": row.time, "kind": row.kind}
        has = {} if row.value is None else {"value": row.value}
        _print_json({**told, **_fields(form, key=row.key, **has)})
    else:
        value = b"" if row.value is None else row.value
        before = f"{row.seq}\t{row.time.isoformat()}\t{row.kind}\t"
        _print_line(form, row.key, value, before=before)


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
    """Remove a consumer and release the log that it retains.

    The checkpoint of a feed that began with --since snapshot remains until it expires:
    `delete-checkpoint` deletes it earlier.
    """
    siltstone.changes.forget(session.url, name, store_options=session.store_options)
    if as_json:
        _print_json({"forgotten": name})
