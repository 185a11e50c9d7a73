"""Commands about ingest jobs: files into a database, and how a job stands."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import siltstone
from siltstone.cli._common import (
    Place,
    Size,
    Span,
    _as_json,
    _example,
    _print_json,
    _print_table,
    _progress,
)

_FORMATS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_PACKED = {".bz2", ".gz", ".zst"}
_DAY_SECONDS = 86400.0
_WAIT_SECONDS = 600.0
_LEAST_MEMORY_BYTES = 64 << 20


def _format_of(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] and suffixes[-1] in _PACKED and suffixes[-2:-1] == [".csv"]:
        # pyarrow unpacks what is named so.
        return "csv"
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_FORMATS)
        raise click.UsageError(
            f"{path}: which format? Give --format, or a name that ends in {known}"
        )
    return found


def _batches(path: Path, form: str, columns: list[str]) -> Iterator[Any]:
    """The record batches of a file, by pyarrow."""
    import pyarrow as pa  # noqa: PLC0415

    if form == "parquet":
        from pyarrow import parquet  # noqa: PLC0415

        with parquet.ParquetFile(path) as source:
            _check(path, source.schema_arrow, columns)
            yield from source.iter_batches(columns=columns)
    elif form == "csv":
        from pyarrow import csv  # noqa: PLC0415

        # Numbers are the text that they are in the file.
        kinds = dict.fromkeys(columns, pa.binary())
        convert = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
        with csv.open_csv(path, convert_options=convert) as source:
            _check(path, source.schema, columns)
            yield from source
    else:
        with pa.memory_map(str(path)) as mapped:
            try:
                source = pa.ipc.open_file(mapped)
            except pa.ArrowInvalid:
                mapped.seek(0)
                source = pa.ipc.open_stream(mapped)
                _check(path, source.schema, columns)
                yield from source
            else:
                _check(path, source.schema, columns)
                yield from (source.get_batch(n) for n in range(source.num_record_batches))


def _check(path: Path, schema: Any, columns: list[str]) -> None:
    """That the columns are there, and hold byte strings or text.

    :raises Invalid: they are not, or do not.
    """
    for name in columns:
        if name not in schema.names:
            known = ", ".join(schema.names)
            text = f"{path}: the column {name} is missing; the columns are: {known}"
            raise siltstone.Invalid(text)
        kind = str(schema.field(name).type)
        if not any(word in kind for word in ("binary", "string")):
            text = f"{path}: the column {name} holds {kind}; keys and values are binary or text"
            raise siltstone.Invalid(text)


def _plain(column: Any) -> Any:
    """A dictionary of strings as the strings: so pandas writes its categories."""
    import pyarrow as pa  # noqa: PLC0415

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _rows(files: tuple[Path, ...], form: str | None, key: str, value: str) -> Iterator[Any]:
    """Pairs of columns, file after file."""
    import pyarrow as pa  # noqa: PLC0415

    columns = [key] if key == value else [key, value]
    for path in files:
        try:
            for batch in _batches(path, form or _format_of(path), columns):
                yield tuple(_plain(batch.column(name)) for name in (key, value))
        except (pa.ArrowException, OSError) as error:
            raise siltstone.Invalid(f"{path}: {error}") from error


def _list(session: Place, as_json: bool) -> None:
    """Says which jobs have something staged."""
    jobs = siltstone.ingest.jobs(session.url, store_options=session.store_options)
    if as_json:
        _print_json([job.to_dict() for job in jobs])
        return
    for job in jobs:
        until = job.deadline.strftime("%Y-%m-%d %H:%M UTC")
        told = (job.id, job.status.state, f"{job.bytes} bytes", f"until {until}")
        click.echo("\t".join(told))


def _withdraw(session: Place, job: str, as_json: bool) -> None:
    """Takes a job back; a failure where it stays."""
    stands = siltstone.ingest.withdraw(session.url, job, store_options=session.store_options)
    if as_json:
        _print_json({"job": job, **stands.to_dict()})
    else:
        click.echo(stands.state)
    if stands.state not in ("aborted", "refused", "forgotten"):
        raise click.ClickException(f"the job is {stands.state}, and stays so")


@click.command(
    epilog=_example(
        "example.db ingest rows.parquet --key id --value body",
        "s3://bucket/db ingest 2025.arrow 2026.arrow --sorted --duplicates last",
        "s3://bucket/db ingest --list",
    )
)
@click.argument(
    "files",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE…",
)
@click.option(
    "--list",
    "lists",
    is_flag=True,
    help="Say which jobs have something staged, and how they stand; ingest nothing.",
)
@click.option(
    "--withdraw",
    metavar="JOB",
    help="Take a job back that nobody asked for, such as one that was killed; ingest nothing.",
)
@click.option("--key", default="key", show_default=True, help="The column of the keys.")
@click.option("--value", default="value", show_default=True, help="The column of the values.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "arrow"]),
    help="What the files are; by their names unless given.",
)
@click.option("--sorted", "in_order", is_flag=True, help="All rows come in order of their keys.")
@click.option(
    "--duplicates",
    type=click.Choice(["error", "last"]),
    default="error",
    show_default=True,
    help="What rows with one key are; last: the one that came last counts.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=Size(_LEAST_MEMORY_BYTES),
    help="Memory for sorting, as in `2GiB`; at least 64MiB. What is more goes through files.",
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of those files; that of the system's temporary files unless given.",
)
@click.option(
    "--behind",
    is_flag=True,
    help="The rows fill keys that nobody has written; the database was made for it.",
)
@click.option(
    "--timeout",
    type=Span(),
    default=_WAIT_SECONDS,
    help="How long to wait for the writer: seconds, or as in `5min`. Ten minutes unless given.",
)
@click.option(
    "--take-over", is_flag=True, help="End a writer that did not close; it is fenced if it lives."
)
@_as_json
@click.pass_obj
def ingest(
    session: Place,
    files: tuple[Path, ...],
    lists: bool,
    withdraw: str | None,
    key: str,
    value: str,
    form: str | None,
    in_order: bool,
    duplicates: str,
    memory_bytes: int | None,
    scratch: Path | None,
    behind: bool,
    timeout: float,
    take_over: bool,
    as_json: bool,
) -> None:
    """Makes the rows of files part of a database, all at once: Parquet, CSV, Arrow.

    The files are read by pyarrow (`pip install pyarrow`). The rows are sorted and made into tables
    here, and asked for: a writer that lives takes them in, while it goes on, within ten seconds as
    a rule. Where none lives this is the writer for a moment. What is asked for stays so, also
    where the wait is over: `ingest-status` says how it stands.
    """
    if lists or withdraw is not None:
        if files or (lists and withdraw is not None):
            raise click.UsageError("--list and --withdraw stand alone, without files")
        _list(session, as_json) if withdraw is None else _withdraw(session, withdraw, as_json)
        return
    if not files:
        raise click.UsageError("Missing argument 'FILE…'.")
    if importlib.util.find_spec("pyarrow") is None:
        text = "files are read by pyarrow, which is not installed here: pip install pyarrow"
        raise click.ClickException(text)
    options = session.store_options
    job = siltstone.ingest.Job(
        session.url, lifetime=_DAY_SECONDS, behind=behind, store_options=options
    )
    for path in files:
        if form is None:
            _format_of(path)
    with _progress("ingesting", "bytes") as on_progress:
        part = job.load(
            "files",
            _rows(files, form, key, value),
            sorted=in_order,
            duplicates="last" if duplicates == "last" else "error",
            memory_bytes=memory_bytes,
            scratch=scratch,
            on_progress=on_progress,
        )
    told: dict[str, Any] = {"rows": part.rows, "bytes": part.bytes, "ssts": part.tables}
    if part.tables:
        request = job.commit([part])
        stands = siltstone.ingest.submit(
            request, take_over=take_over or None, timeout=timeout, store_options=options
        )
        told |= {"job": job.id, **stands.to_dict()}
    if as_json:
        _print_json(told)
    else:
        _print_table("ingest", ((name, said) for name, said in told.items() if said is not None))
    if told.get("state") == "refused":
        raise click.exceptions.Exit(1)


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
