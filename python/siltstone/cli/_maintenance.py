"""Commands that verify a database and collect its garbage."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

import siltstone
from siltstone.cli._common import (
    Place,
    Span,
    _as_json,
    _example,
    _print_json,
    _print_table,
    _progress,
    _until_stopped,
)
from siltstone.cli._remedies import _in_our_words, _told

_F = TypeVar("_F", bound=Callable[..., Any])


@click.command(epilog=_example("example.db verify", "example.db verify --json | jq .problems"))
@_as_json
@click.pass_obj
def verify(session: Place, as_json: bool) -> None:
    """Read and check every byte of the database.

    The command prints one line for each problem, and exits with status 1 if there is any. It also
    names clones that are not at their places, and how to release their pins.
    """
    with _progress("verify", "bytes") as on_progress:
        report = siltstone.admin.verify(
            session.url, store_options=session.store_options, on_progress=on_progress
        )
    if as_json:
        _print_json(report.to_dict())
    else:
        for problem in report.problems:
            click.echo(f"Error: {_in_our_words(str(problem))}", err=True)
        more = report.problem_count - len(report.problems)
        if more:
            click.echo(f"Error: and {more} more problems", err=True)
        if report.sealed_objects:
            click.echo(
                f"Error: {report.sealed_objects} encrypted objects: only their form was checked; "
                "give the store option encryption_key to check what they hold",
                err=True,
            )
        for lost in report.lost_clones:
            click.echo(f"Warning: {_in_our_words(str(lost))}", err=True)
        lists = {"orphans": len(report.orphans), "lost_clones": len(report.lost_clones)}
        counts = {**report.to_dict(), **lists}
        del counts["problems"]
        _print_table("verify", counts.items())
    if not report.ok:
        raise SystemExit(1)


def _min_age(command: _F) -> _F:
    text = (
        "Keep objects younger than this: seconds, or text such as 7days 30min 10s. Default: 5min."
    )
    return click.option("--min-age", type=Span(), help=text)(command)


def _db_delete_grace(command: _F) -> _F:
    text = "Keep a softly destroyed database for this long. Default: 1day."
    return click.option("--db-delete-grace", type=Span(), help=text)(command)


@click.command(
    epilog=_example("example.db gc --dry-run", "s3://bucket/db gc --min-age 1h --json | jq .total")
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Delete nothing; list the objects to delete, and the reason for each.",
)
@_min_age
@_db_delete_grace
@_as_json
@click.pass_obj
def gc(
    session: Place,
    dry_run: bool,
    min_age: float | None,
    db_delete_grace: float | None,
    as_json: bool,
) -> None:
    """Delete unreferenced objects, once.

    The command exits with status 1 if a delete fails.
    """
    with _progress("gc", "objects") as on_progress:
        report = siltstone.admin.gc(
            session.url,
            dry_run=dry_run,
            min_age=min_age,
            db_delete_grace=db_delete_grace,
            store_options=session.store_options,
            on_progress=on_progress,
        )
    if as_json:
        _print_json(report.to_dict())
    else:
        for one in report.objects:
            click.echo(f"{one.object}\t{one.bytes} bytes\t{one.age:.0f} s\t{one.why}")
        _print_table("gc", _gc_rows(report))
    if report.trouble is not None:
        line = _in_our_words(report.trouble)
        raise click.ClickException(f"some deletes failed; the first error is: {line}")


def _gc_rows(report: siltstone.admin.GcReport) -> Iterable[tuple[str, Any]]:
    verb = "would delete" if report.dry_run else "deleted"
    for name, one in report.classes.items():
        yield f"{name} {verb}", f"{one.deleted} ({one.bytes} bytes)"
        if one.failed or one.denied:
            yield f"{name} failed, denied", f"{one.failed}, {one.denied}"
    yield "checkpoints revoked", report.revoked
    yield "readers' versions unleased", report.unleased
    yield "unfinished uploads removed", f"{report.swept_uploads} ({report.swept_bytes} bytes)"
    for stays in report.stays:
        yield f"{stays.of} stay: {stays.why}", f"{stays.objects} ({stays.bytes} bytes)"


@click.command(
    "run-gc",
    epilog=_example("example.db run-gc --interval 10min")
    + "\n  siltstone run-gc s3://bucket/one s3://bucket/two",
)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("--interval", type=Span(), help="Time between two rounds. Default: 5min.")
@_min_age
@_db_delete_grace
@_as_json
@click.pass_obj
def run_gc(
    session: Place,
    urls: tuple[str, ...],
    interval: float | None,
    min_age: float | None,
    db_delete_grace: float | None,
    as_json: bool,
) -> None:
    """Run a garbage collector until it is stopped.

    It collects the databases at each URL and at --path. The command prints one line for each round
    that found something, and for each error. Ctrl-C and SIGTERM end it with status 0. It also ends
    when no database is left to collect. It exits with status 1 if one of the places had no
    database, or if a database was destroyed meanwhile.
    """
    given = [*([session.given_url] if session.given_url else []), *urls]
    if not given:
        raise click.UsageError("Missing argument 'URL...'.")
    ended = {}

    def line(url: str, event: str, **facts: Any) -> None:
        if as_json:
            _print_json({"url": url, "event": event, **facts})
        else:
            click.echo("\t".join([url, event, *(f"{name} {fact}" for name, fact in facts.items())]))
        sys.stdout.flush()

    def on_round(url: str, report: siltstone.admin.GcReport) -> None:
        total = report.total
        line(url, "round", deleted=total.deleted, bytes=total.bytes, failed=total.failed,
             denied=total.denied, young=total.young)  # fmt: skip

    def on_error(url: str, error: Exception) -> None:
        line(url, "error", text=_told(error))

    def on_end(url: str, why: str) -> None:
        ended[url] = _in_our_words(why)
        line(url, "end", text=ended[url])

    with _until_stopped():
        siltstone.admin.run_gc(
            given,
            min_age=min_age,
            db_delete_grace=db_delete_grace,
            interval=interval,
            store_options=session.store_options,
            on_round=on_round,
            on_error=on_error,
            on_end=on_end,
        )
    if ended:
        told = (f"{url}: {why}" for url, why in sorted(ended.items()))
        raise click.ClickException(f"NotFound: {'; '.join(told)}")
