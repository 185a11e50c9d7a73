"""The command that repairs a database that cannot be opened."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

import siltstone
from siltstone._repair import lost_in_words
from siltstone.cli._common import Place, _as_json, _example, _print_json, _print_table
from siltstone.cli._remedies import _in_our_words
from siltstone.cli._text import _encode


@click.command(
    epilog=_example(
        "example.db repair",
        "example.db repair --yes",
        "example.db repair --give-up-table compacted/01ARZ3NDEKTSV4RRFFQ69G5FAV.sst",
        "example.db repair --collect",
    ),
)
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation. Required without a terminal."
)
@click.option("--take-over", is_flag=True, help="Fence a writer that is alive.")
@click.option(
    "--give-up-table",
    "table",
    metavar="NAME",
    help="Only give up this unreadable table, named as verify names it.",
)
@click.option(
    "--collect",
    is_flag=True,
    help="Only allow collectors again to delete tables that a repair left unreferenced. Verify the "
    "clones of the database first.",
)
@_as_json
@click.pass_obj
def repair(
    session: Place, yes: bool, take_over: bool, table: str | None, collect: bool, as_json: bool
) -> None:
    """Repair a database that cannot be opened or compacted.

    The command lists the damage that prevents opening or compaction and the data that a repair
    loses, then asks for confirmation. A damaged object of the log cuts the log off at that object.
    Damaged newest manifests are skipped. A damaged record of compaction jobs costs only the work of
    unfinished jobs. The repair first copies all affected objects below damaged/, and deletes
    nothing. If you have a backup, put the damaged objects back instead: that loses no data.

    Without a terminal and without --yes, the command only prints the report. It exits with status 1
    if damage prevents opening or compaction.

    A damaged table does not prevent opening. --give-up-table gives it up by name. The rows of older
    tables between its first and last key are given up too, because otherwise rows that it had
    deleted or overwritten would reappear.
    """
    place, options = session.url, session.store_options
    if collect and table is not None:
        raise click.UsageError("--collect and --give-up-table exclude each other")
    if table is not None:
        _give_up(session, table, yes, take_over, as_json)
        return
    if collect:
        siltstone.admin.collect_after_repair(place, store_options=options)
        if as_json:
            _print_json({"collects": place})
        return
    told = siltstone.admin.repair(place, store_options=options)
    asks = told.needed and not yes and _answers()
    if not as_json or asks:
        _tell(told, asks)
    acts = told.needed and (yes or (asks and click.confirm("Continue without it?", err=True)))
    if acts:
        told = siltstone.admin.repair(
            place, dry_run=False, take_over=take_over, store_options=options
        )
    if as_json:
        _print_json(told.to_dict())
    elif acts:
        _tell(told, False)
    if told.needed and not told.done:
        click.echo(
            "Nothing was changed. Add --yes to continue without the damaged objects.", err=True
        )
        sys.exit(1)


def _give_up(session: Place, table: str, yes: bool, take_over: bool, as_json: bool) -> None:
    place, options = session.url, session.store_options
    told = siltstone.admin.give_up_table(place, table, store_options=options)
    asks = not yes and _answers()
    if not as_json or asks:
        _print_rows(_rows_of_table(told), asks)
    acts = yes or (asks and click.confirm("Continue without it?", err=True))
    if acts:
        told = siltstone.admin.give_up_table(
            place, table, dry_run=False, take_over=take_over, store_options=options
        )
    if as_json:
        _print_json(told.to_dict())
    elif acts:
        _print_rows(_rows_of_table(told), False)
    if not told.done:
        click.echo("Nothing was changed. Add --yes to continue without the table.", err=True)
        sys.exit(1)


def _rows_of_table(report: siltstone.admin.GiveUpReport) -> Iterator[tuple[str, Any]]:
    yield report.object, _in_our_words(report.damage)
    yield "given up" if report.done else "would be given up", ", ".join(report.layers)
    yield "first key", _encode(report.first_key, None)
    yield "last key", _encode(report.last_key, None)
    yield "rows lost", report.rows_lost
    yield "rows of older tables given up too, at most", report.rows_hidden
    if report.checkpoints_dropped:
        yield "checkpoints that hold it, dropped", " ".join(map(str, report.checkpoints_dropped))
    if report.clones:
        yield "clones that read it; give it up there too", " ".join(report.clones)
    if report.aside:
        yield "copy", report.aside


def _answers() -> bool:
    """Whether standard input is a terminal, so that the user can be asked."""
    return sys.stdin.isatty()


def _tell(report: siltstone.admin.RepairReport, err: bool) -> None:
    _print_rows(_rows(report), err)


def _print_rows(rows: Iterator[tuple[str, Any]], err: bool) -> None:
    if err:
        for name, value in rows:
            click.echo(f"{name}\t{value}", err=True)
    else:
        _print_table("repair", rows)


def _rows(report: siltstone.admin.RepairReport) -> Iterator[tuple[str, Any]]:
    if not report.needed:
        yield "nothing to repair", "no damage prevents opening or compaction"
        return
    for one in report.damage:
        yield one.object, _in_our_words(one.what)
    yield "done" if report.done else "would be done", _measures(report)
    yield "kept up to sequence number", report.seq_kept
    if report.seq_lost is not None:
        yield "lost up to sequence number, at least", report.seq_lost
    yield "operations lost", lost_in_words(report)
    if report.objects_unknown:
        yield "objects with an unknown number of rows", report.objects_unknown
    if report.checkpoints_dropped:
        yield "checkpoints dropped", " ".join(map(str, report.checkpoints_dropped))
    if report.aside:
        yield "copies", report.aside
    if report.tables_stay:
        yield "unreferenced tables", "kept until repair --collect"


def _measures(report: siltstone.admin.RepairReport) -> str:
    parts = []
    if report.manifests_void:
        parts.append(f"{report.manifests_void} manifests are skipped")
    if report.objects_cut_off:
        parts.append(f"the log is cut off before {report.objects_cut_off} objects")
    elif report.objects_unknown:
        parts.append("the log is cut off where its objects are missing")
    return " and ".join(parts) or "older manifests are no longer used"
