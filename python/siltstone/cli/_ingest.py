"""Commands that ingest files, and that list, withdraw and inspect ingest jobs."""

from __future__ import annotations

import contextlib
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
        # pyarrow decompresses files with these suffixes.
        return "csv"
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        known = ", ".join(_FORMATS)
        raise click.UsageError(
            f"{path}: unknown format; give --format, or a file name that ends in {known}"
        )
    return found


def _batches(path: Path, form: str, columns: list[str]) -> Iterator[Any]:
    """Yields the record batches of a file, read by pyarrow."""
    import pyarrow as pa  # noqa: PLC0415

    if form == "parquet":
        from pyarrow import parquet  # noqa: PLC0415

        with parquet.ParquetFile(path) as source:
            _check(path, source.schema_arrow, columns)
            yield from source.iter_batches(columns=columns)
    elif form == "csv":
        from pyarrow import csv  # noqa: PLC0415

        _check_names(path, _header(path), columns)
        # The columns are read as text, so a number stays as the file writes it. The types of other
        # columns would be those of the first block, which need not fit the others.
        kinds = dict.fromkeys(columns, pa.binary())
        convert = csv.ConvertOptions(
            column_types=kinds, include_columns=columns, strings_can_be_null=False
        )
        with csv.open_csv(path, convert_options=convert) as source:
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


def _header(path: Path) -> list[str]:
    """Returns the names of the columns of a CSV file. It reads the first block.

    :raises Invalid, UnicodeDecodeError: if the names are not UTF-8.
    """
    from pyarrow import csv  # noqa: PLC0415

    # The rows are checked later. Those of a file in UTF-16 would hide the error of its names.
    parse = csv.ParseOptions(invalid_row_handler=lambda _: "skip")
    with csv.open_csv(path, parse_options=parse) as source:
        names: list[str] = source.schema.names
    if any("\0" in name for name in names):
        # UTF-16 without a mark of its byte order.
        raise _not_utf8(path)
    return names


def _not_utf8(path: Path) -> siltstone.Invalid:
    """The error for a file whose columns have names in another encoding."""
    text = f"{path}: the names of the columns are not UTF-8: save the file as UTF-8"
    return siltstone.Invalid(text)


def _check(path: Path, schema: Any, columns: list[str]) -> None:
    """Checks that the columns exist once each and hold binary data or text.

    :raises Invalid: if a column is missing, is there twice, or has another type.
    """
    _check_names(path, schema.names, columns)
    for name in columns:
        kind = schema.field(name).type
        if not _holds_bytes(kind):
            text = f"{path}: the column {name} holds {kind}; keys and values are binary or text"
            raise siltstone.Invalid(text)


def _check_names(path: Path, names: list[str], columns: list[str]) -> None:
    """Checks that the columns exist once each.

    :raises Invalid: if a column is missing or is there twice.
    """
    for name in columns:
        if name not in names:
            text = f"{path}: the column {name} is missing; the columns are: {', '.join(names)}"
            raise siltstone.Invalid(text)
        if names.count(name) > 1:
            text = f"{path}: {names.count(name)} columns have the name {name}; rename one"
            raise siltstone.Invalid(text)


def _holds_bytes(kind: Any) -> bool:
    """Whether a type of pyarrow is binary or text, or a dictionary of these."""
    import pyarrow as pa  # noqa: PLC0415

    if pa.types.is_dictionary(kind):
        return _holds_bytes(kind.value_type)
    tests = ("binary", "large_binary", "fixed_size_binary", "string", "large_string")
    # pyarrow 15 has no tests for views.
    views = [name for name in ("binary_view", "string_view") if hasattr(pa.types, f"is_{name}")]
    return any(getattr(pa.types, f"is_{name}")(kind) for name in (*tests, *views))


def _plain(column: Any) -> Any:
    """Decodes a dictionary column to its strings; pandas writes categories as dictionaries."""
    import pyarrow as pa  # noqa: PLC0415

    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class _Rows:
    """The pairs of a key column and a value column, file after file. It knows the file of a row,
    because the errors of a load count the rows of all files."""

    def __init__(self, files: tuple[Path, ...], form: str | None, key: str, value: str) -> None:
        self._files = files
        self._form = form
        self._names = (key, value)
        self._first_rows: list[tuple[int, Path]] = []

    def __iter__(self) -> Iterator[Any]:
        """Reads the files.

        :raises Invalid: if a file cannot be read, or a key or value is null.
        """
        import pyarrow as pa  # noqa: PLC0415

        key, value = self._names
        columns = [key] if key == value else [key, value]
        rows = 0
        for path in self._files:
            self._first_rows.append((rows, path))
            try:
                for batch in _batches(path, self._form or _format_of(path), columns):
                    pair = tuple(_plain(batch.column(name)) for name in self._names)
                    for name, column in zip(self._names, pair, strict=True):
                        _check_nulls(path, name, column, rows - self._first_rows[-1][0])
                    rows += batch.num_rows
                    yield pair
            except (pa.ArrowException, OSError) as error:
                raise siltstone.Invalid(f"{path}: {error}") from error
            except UnicodeDecodeError as error:
                raise _not_utf8(path) from error

    @contextlib.contextmanager
    def naming_files(self) -> Iterator[None]:
        """Adds the files of rows to errors of the block that name rows."""
        try:
            yield
        except siltstone.Invalid as error:
            raise self._placed(error) from error

    def _place(self, row: int) -> str:
        """Returns the file of a row, and its number there; both are counted from 0."""
        # An empty file begins at the row of the next one.
        first, path = [one for one in self._first_rows if one[0] <= row][-1]
        return f"row {row - first} of {path}"

    def _placed(self, error: siltstone.Invalid) -> siltstone.Invalid:
        """Returns the error of a load with the files of the rows that it names."""
        rows = [error.context.get(name) for name in ("row", "other row")]
        places = [self._place(int(row)) for row in rows if row is not None and row.isdecimal()]
        if not places:
            return error
        text = f"{' and '.join(places)}: {error}"
        return siltstone.Invalid(text, operation=error.operation, context=error.context)


def _check_nulls(path: Path, name: str, column: Any, before: int) -> None:
    """Checks that no row is null.

    :param before: the rows of the file before those of the column.
    :raises Invalid: if a row is null.
    """
    if column.null_count:
        row = before + column.is_null().to_pylist().index(True)
        text = (
            f"row {row} of {path}: the column {name} is null: a null is neither a key nor a value"
        )
        raise siltstone.Invalid(text)


def _job(session: Place, behind: bool) -> siltstone.ingest.Job:
    """Begins a job.

    :raises Invalid: if the database is a table.
    """
    options = session.store_options
    if siltstone.admin.manifest(session.url, store_options=options)["schema"] is not None:
        text = "the database is a table, and the command ingests only keys and values of bytes"
        remedy = "load rows with `db.table.load` in Python, or with Spark"
        raise siltstone.Invalid(f"{text}: {remedy}")
    return siltstone.ingest.Job(
        session.url, lifetime=_DAY_SECONDS, behind=behind, store_options=options
    )


@contextlib.contextmanager
def _aborted_on_failure(job: siltstone.ingest.Job) -> Iterator[None]:
    """Aborts the job if the block fails or is interrupted, so that a collector deletes the tables
    that it has staged."""
    try:
        yield
    except BaseException:
        try:
            job.abort()
        except siltstone.Error as error:
            click.echo(f"The tables of job {job.id} stay until {job.deadline}: {error}", err=True)
        raise


def _list(session: Place, as_json: bool) -> None:
    """Prints the jobs that have staged data."""
    jobs = siltstone.ingest.jobs(session.url, store_options=session.store_options)
    if as_json:
        _print_json([job.to_dict() for job in jobs])
        return
    for job in jobs:
        until = job.deadline.strftime("%Y-%m-%d %H:%M UTC")
        told = (job.id, job.status.state, f"{job.bytes} bytes", f"until {until}")
        click.echo("\t".join(told))


def _withdraw(session: Place, job: str, as_json: bool) -> None:
    """Withdraws a job.

    :raises ClickException: if the job cannot be withdrawn.
    """
    stands = siltstone.ingest.withdraw(session.url, job, store_options=session.store_options)
    if as_json:
        _print_json({"job": job, **stands.to_dict()})
    else:
        click.echo(stands.state)
    if stands.state not in ("aborted", "refused", "forgotten"):
        raise click.ClickException(f"the job is {stands.state} and cannot be withdrawn")


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
    help="List the jobs that have staged data, with their states; ingest nothing.",
)
@click.option(
    "--withdraw",
    metavar="JOB",
    help="Withdraw a job that was not submitted, such as one of a killed process; ingest nothing.",
)
@click.option("--key", default="key", show_default=True, help="Column of the keys.")
@click.option("--value", default="value", show_default=True, help="Column of the values.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "csv", "arrow"]),
    help="Format of the files. Default: by the file name.",
)
@click.option(
    "--sorted", "in_order", is_flag=True, help="The rows are in ascending order of their keys."
)
@click.option(
    "--duplicates",
    type=click.Choice(["error", "last"]),
    default="error",
    show_default=True,
    help="Fail on rows with equal keys (error), or keep the last of them (last).",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=Size(_LEAST_MEMORY_BYTES),
    help="Memory for sorting, such as 2GiB; at least 64MiB. More data is sorted through files.",
)
@click.option(
    "--scratch",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder for temporary sort files. Default: the temporary folder of the system.",
)
@click.option(
    "--behind",
    is_flag=True,
    help="Insert the rows as older than all existing rows. See `create --allow-ingest-behind`.",
)
@click.option(
    "--timeout",
    type=Span(),
    default=_WAIT_SECONDS,
    help="Maximum wait for the writer: seconds, or text such as 5min. Default: 10min.",
)
@click.option("--take-over", is_flag=True, help="Fence a writer that did not close cleanly.")
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
    """Ingest Parquet, CSV or Arrow files.

    All rows become visible in one atomic commit. pyarrow reads the files (`pip install pyarrow`).
    The command sorts the rows, builds tables, and submits them as an ingest job. An open writer
    adopts the job, usually within ten seconds. If no writer is open, the command opens one for the
    time of the commit. A table takes its rows from Python or Spark, not from this command. A
    submitted job remains submitted after the timeout: `ingest-status` prints its state.
    """
    if lists or withdraw is not None:
        if files or (lists and withdraw is not None):
            raise click.UsageError("--list and --withdraw exclude each other, and take no files")
        _list(session, as_json) if withdraw is None else _withdraw(session, withdraw, as_json)
        return
    if not files:
        raise click.UsageError("Missing argument 'FILE…'.")
    if importlib.util.find_spec("pyarrow") is None:
        text = "pyarrow reads the files, and is not installed: pip install pyarrow"
        raise click.ClickException(text)
    options = session.store_options
    for path in files:
        if form is None:
            _format_of(path)
    job = _job(session, behind)
    rows = _Rows(files, form, key, value)
    with _aborted_on_failure(job):
        with rows.naming_files(), _progress("ingesting", "bytes") as on_progress:
            part = job.load(
                "files",
                rows,
                sorted=in_order,
                duplicates="last" if duplicates == "last" else "error",
                memory_bytes=memory_bytes,
                scratch=scratch,
                on_progress=on_progress,
            )
        request = job.commit([part]) if part.tables else None
    told: dict[str, Any] = {"rows": part.rows, "bytes": part.bytes, "ssts": part.tables}
    if request is not None:
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
    """Print the state of an ingest job.

    JOB is the id of the job (`Job.id`). The states are open, pending, adopted, refused, aborted and
    forgotten. The sequence number of an adopted job and the reason of a
    refused job follow the state.
    """
    stands = siltstone.ingest.status(session.url, job, store_options=session.store_options)
    if as_json:
        _print_json({"job": job, **stands.to_dict()})
        return
    told = [stands.state, stands.seq, stands.reason]
    click.echo("\t".join(str(one) for one in told if one is not None))
