"""The program `siltstone`: its options, and the commands that read and write rows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

import siltstone
from siltstone.cli._changes import changes, consumers, forget_consumer
from siltstone.cli._checkpoints import (
    create_checkpoint,
    delete_checkpoint,
    list_checkpoints,
    refresh_checkpoint,
)
from siltstone.cli._clones import clone, release_clone
from siltstone.cli._common import (
    Span,
    _as_json,
    _example,
    _pairs,
    _print_json,
    _print_table,
)
from siltstone.cli._compaction import _options, _options_as, compact, run_compactor
from siltstone.cli._export import export, import_, promote
from siltstone.cli._ingest import ingest, ingest_status
from siltstone.cli._lifecycle import destroy, history, restore, versions
from siltstone.cli._maintenance import gc, run_gc, verify
from siltstone.cli._probe import probe
from siltstone.cli._repair import repair
from siltstone.cli._streams import errors_in_a_line, prepare_streams
from siltstone.cli._text import _decode, _encode, _fields, _in_form, _plain, _print_line

ABSENT = 3
"""Exit status when the requested key is absent."""

_F = TypeVar("_F", bound=Callable[..., Any])


class Session:
    """The options of the program, which all commands share."""

    def __init__(
        self, url: str | None, store_options: dict[str, str], merge_operator: str | None = None
    ) -> None:
        self.given_url = url
        self.store_options = store_options
        self.merge_operator = merge_operator

    @property
    def url(self) -> str:
        """URL or path of the database.

        :raises UsageError: if `--path` is missing.
        """
        if self.given_url is None:
            text = "Missing option '--path'. Give it before the command: siltstone --path URL …"
            raise click.UsageError(text)
        return self.given_url

    def reader(
        self, checkpoint: str | None = None, *, lasting: bool = False, **named: Any
    ) -> siltstone.Reader:
        """Opens a reader.

        :param checkpoint: the id or name of the checkpoint to read; None: the durable state.
        :param lasting: take a lease, for a read that may run for long. A short read takes none, so
            that it needs no write permission and writes no object.
        """
        options = {**named, "reader_lease": lasting}
        return siltstone.open_reader(
            self.url,
            checkpoint=checkpoint,
            options=options,
            store_options=self.store_options,
            merge_operator=self.merge_operator,
        )

    def writer(
        self,
        *,
        take_over: bool,
        create: bool = False,
        allow_ingest_behind: bool = False,
        **named: Any,
    ) -> siltstone.Database:
        """Opens the writer. By default it neither creates a database nor fences another writer."""
        return siltstone.open(
            self.url,
            create=create,
            take_over=take_over,
            allow_ingest_behind=allow_ingest_behind,
            options=named,
            store_options=self.store_options,
            merge_operator=self.merge_operator,
        )


class Commands(click.Group):
    """A group of commands that prints an error of the library in one line."""

    def main(self, *args: Any, **named: Any) -> Any:
        """Runs the program, with streams that can be written to."""
        prepare_streams()
        return super().main(*args, **named)

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        """Parses the options of the program. The options --help and --version print here."""
        with errors_in_a_line():
            return super().make_context(*args, **named)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command.

        :raises UsageError: if an option of the program is given after the command.
        """
        try:
            with errors_in_a_line():
                return super().invoke(ctx)
        except click.NoSuchOption as error:
            if error.option_name in (option for one in self.params for option in one.opts):
                text = f"{error.message} Give it before the command: siltstone --path URL …"
                raise click.UsageError(text, error.ctx) from error
            raise

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Finds the command that the arguments name.

        :raises UsageError: if there is none; a text that looks like a store option is not shown.
        """
        if args and "=" in args[0]:
            # Click would show the text, which may have a secret: --store-option a=b secret=c.
            text = "No such command 'NAME=…'. Give --store-option before each store option."
            raise click.UsageError(text, ctx)
        return super().resolve_command(ctx, args)


def _take_over(command: _F) -> _F:
    text = "Fence a writer that did not close cleanly."
    return click.option("--take-over", is_flag=True, help=text)(command)


def _checkpoint(command: _F) -> _F:
    text = "Read the state of this checkpoint, given by id or name. Default: the durable state."
    return click.option("--checkpoint", metavar="ID", help=text)(command)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_example(
        "example.db create",
        "example.db put colour grey",
        "s3://bucket/db scan --limit 10",
        "example.db stats --json",
    ),
)
@click.option("--path", "url", metavar="URL", help="URL or path of the database.")
@click.option(
    "--store-option",
    "store_options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs,
    help="Set an option of the object store, such as region. Pass credentials by the environment.",
)
@click.option(
    "--merge-operator",
    metavar="NAME",
    help="Merge operator, as module:function. Built-in operators are found by name.",
)
@click.version_option(siltstone.__version__, package_name="siltstone")
@click.pass_context
def main(
    context: click.Context,
    url: str | None,
    store_options: dict[str, str],
    merge_operator: str | None,
) -> None:
    """Inspect and change a Siltstone database."""
    context.obj = Session(url, store_options, merge_operator)


_RECORDED = ("compression",)
"""Options that the database records, so that later writers use them too."""

# The remedies of `create`, by the state of the database that is at the place.
_DATABASE = "there is a database at {} already; `siltstone --path URL put` writes to it"
_DESTROYED = (
    "the database at {} was destroyed softly, and its objects wait for a collector;"
    " `siltstone --path URL destroy --yes` deletes them immediately"
)
_MIRROR = (
    "there is a mirror at {}, which exports replace; `siltstone --path URL promote` makes it"
    " writable"
)
_UNFINISHED = (
    "a clone, an export or an import to {} was interrupted; repeat it, or remove its objects with"
    " `siltstone --path URL destroy --yes`"
)


def _occupied(session: Session) -> str:
    """Returns why no database can be created at a place that has one, and the remedy.

    :raises NotFound: if the place has no database.
    """
    state = siltstone.admin.manifest(session.url, store_options=session.store_options)
    text = _DATABASE
    if state["destroyed_at_ms"] is not None:
        text = _DESTROYED
    elif not state["initialized"]:
        text = _UNFINISHED
    elif state["mirror_of"] is not None:
        text = _MIRROR
    return text.format(session.url)


@main.command(
    epilog=_example("example.db create", "s3://bucket/db create --option compression=zstd")
)
@click.option(
    "--allow-ingest-behind",
    is_flag=True,
    help="Allow ingest jobs behind the existing rows. Compaction then keeps all tombstones.",
)
@_options_as("Set an option that the database records: compression=zstd, lz4 or none.")
@_as_json
@click.pass_obj
def create(
    session: Session, allow_ingest_behind: bool, options: dict[str, Any], as_json: bool
) -> None:
    """Create a database.

    The command fails with Conflict if a database exists.

    Three settings are permanent: the codec of the tables (--option compression=zstd), the merge
    operator, and --allow-ingest-behind.
    """
    lost = next((name for name in options if name not in _RECORDED), None)
    if lost is not None:
        raise click.BadParameter(
            f"{lost} is not recorded in the database: set it where the database is opened, as"
            f" open(…, options={{'{lost}': …}}), or in the command that runs the component",
            param_hint="--option",
        )
    with contextlib.suppress(siltstone.NotFound):
        raise siltstone.Conflict(_occupied(session))
    # Another process may create the database after the check. Then `open` fails with Conflict, or
    # the epoch is not the first.
    try:
        with session.writer(
            take_over=False, create=True, allow_ingest_behind=allow_ingest_behind, **options
        ) as db:
            first = db.stats().epoch == 1
    except siltstone.Conflict as conflict:
        raise siltstone.Conflict(_DATABASE.format(session.url)) from conflict
    if not first:
        raise siltstone.Conflict(_DATABASE.format(session.url))
    if as_json:
        made = siltstone.admin.manifest(session.url, store_options=session.store_options)
        _print_json({"url": session.url, "database": made["database"]})


@main.command(
    epilog=_example(
        "example.db get colour", "example.db get --hex 00ff", "example.db get --escaped colour"
    )
)
@click.argument("key")
@_checkpoint
@_in_form
@_as_json
@click.pass_obj
def get(
    session: Session, key: str, checkpoint: str | None, form: str | None, as_json: bool
) -> None:
    """Print the value of KEY.

    Bytes that are not UTF-8 are printed as \\xNN; with --escaped, backslashes and control
    characters are escaped too, as by `scan`. The command exits with status 3 if the key is absent.
    """
    with session.reader(checkpoint) as reader:
        name = _decode(key, form)
        value = reader.get(name)
    if as_json:
        _print_json(_fields(form, key=name, value=value))
    elif value is not None:
        click.echo(_plain(value, form))
    else:
        click.echo(f"Error: the key '{_encode(name, form)}' is absent", err=True)
    if value is None:
        raise SystemExit(ABSENT)


@main.command(
    epilog=_example(
        "example.db put colour grey",
        "example.db put --ttl 60 session 42",
        "new.db put --create colour grey",
    )
)
@click.argument("key")
@click.argument("value")
@click.option("--ttl", type=Span(), help="Time to live: seconds, or text such as 2h.")
@click.option("--create", is_flag=True, help="Create the database if it does not exist.")
@_take_over
@_in_form
@_as_json
@click.pass_obj
def put(
    session: Session,
    key: str,
    value: str,
    ttl: float | None,
    create: bool,
    take_over: bool,
    form: str | None,
    as_json: bool,
) -> None:
    """Set KEY to VALUE, and wait until the write is durable.

    KEY and VALUE are text; with --escaped they have the escapes that `scan` prints. A table accepts
    only the bytes of its rows, as `scan` prints them: Python and Spark write rows.
    """
    name, data = _decode(key, form), _decode(value, form)
    with session.writer(take_over=take_over, create=create) as db:
        _check_row(db, name, data)
        commit = db.put(name, data, ttl=ttl)
        commit.wait()
    if as_json:
        _print_json({**_fields(form, key=name), "seq": commit.seq})


def _check_row(db: siltstone.Database, key: bytes, value: bytes) -> None:
    """Checks that a key and a value are a row of the table, if the database has columns.

    :raises Invalid: if they are not.
    """
    try:
        columns = db.table.schema
    except siltstone.Invalid:
        return  # a database without columns
    try:
        columns.row(key, value)
    except siltstone.Error as error:
        text = (
            "the database is a table, and the key and value are not the bytes of one of its rows:"
            " write rows with `db.table.put` in Python, or with Spark"
        )
        raise siltstone.Invalid(text) from error


@main.command(epilog=_example("example.db delete colour", "example.db delete layer/ --end layer0"))
@click.argument("key")
@click.option("--end", help="Delete the range of keys from KEY up to this key, exclusive.")
@_take_over
@_in_form
@_as_json
@click.pass_obj
def delete(
    session: Session,
    key: str,
    end: str | None,
    take_over: bool,
    form: str | None,
    as_json: bool,
) -> None:
    """Delete KEY or a range of keys.

    The command returns when the delete is durable. Deleting an absent key succeeds.
    """
    name = _decode(key, form)
    last = None if end is None else _decode(end, form)
    with session.writer(take_over=take_over) as db:
        commit = db.delete(name) if last is None else db.delete_range(name, last)
        commit.wait()
    if as_json:
        _print_json({**_fields(form, key=name), "seq": commit.seq})


@main.command(
    epilog=_example(
        "example.db scan --prefix layer/ --limit 10",
        "example.db scan --checkpoint before-migration",
        "example.db scan --json | jq .key",
    )
)
@click.option("--start", help="First key, inclusive.")
@click.option("--end", help="End key, exclusive.")
@click.option("--prefix", help="Print only keys that start with this prefix.")
@click.option("--reverse", is_flag=True, help="Scan from the greatest key to the smallest.")
@click.option("--limit", type=click.IntRange(min=0), help="Print at most this many rows.")
@_checkpoint
@_in_form
@_as_json
@click.pass_obj
def scan(
    session: Session,
    start: str | None,
    end: str | None,
    prefix: str | None,
    reverse: bool,
    limit: int | None,
    checkpoint: str | None,
    form: str | None,
    as_json: bool,
) -> None:
    """Print keys and values, one row per line.

    A line has the key, a tab and the value. In text, a backslash is printed as \\\\, a tab as \\t,
    line ends as \\n and \\r, and other control characters, and bytes that are not UTF-8, as \\xNN
    for each byte. With --escaped all commands read these escapes. With --json each line is one JSON
    object, whose text has the escapes of JSON; bytes that are not UTF-8 are hexadecimal digits in
    "key_hex" or "value_hex".
    """

    def bound(text: str | None) -> bytes | None:
        return None if text is None else _decode(text, form)

    with (
        session.reader(checkpoint, lasting=True) as reader,
        reader.scan(
            bound(start), bound(end), prefix=bound(prefix), reverse=reverse, limit=limit
        ) as rows,
    ):
        for key, value in rows:
            if as_json:
                _print_json(_fields(form, key=key, value=value))
            else:
                _print_line(form, key, value)


@main.command(
    epilog=_example(
        "example.db stats",
        "example.db stats --json | jq .table_bytes",
        "example.db stats --option l0_compaction_threshold_ssts=4",
    )
)
@click.option("--prometheus", is_flag=True, help="Print in the text format of Prometheus.")
@_options
@_as_json
@click.pass_obj
def stats(session: Session, prometheus: bool, options: dict[str, Any], as_json: bool) -> None:
    """Print the statistics of the database.

    The figures are those that a reader sees. The command opens no writer and disturbs none. Sizes
    come from the newest manifest. Rows in memory are the rows of the WAL that are not in tables
    yet. Request counts are those of this command.

    The database does not record its compaction options. Figures about pending compaction follow
    the options given here: give those of the writer or the compactor.
    """
    if prometheus and as_json:
        raise click.UsageError("--prometheus and --json are two formats: give one of them")
    with session.reader(**options) as reader:
        figures = reader.stats()
    if prometheus:
        click.echo(figures.to_prometheus(), nl=False)
        return
    if as_json:
        _print_json({figure.name: figure.value for figure in figures})
        return
    if not sys.stdout.isatty():
        _print_table("stats", ((figure.name, figure.value) for figure in figures))
        return
    rows: list[tuple[str, Any]] = []
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            rows.append((group, None))
        rows.append((figure.name, figure.shown()))
    _print_table("stats", rows)


@main.command(epilog=_example("example.db manifest", "example.db manifest --id 3 --json | jq .l0"))
@click.option(
    "--id",
    "manifest_id",
    type=click.IntRange(min=1),
    help="Number of the manifest. Default: the newest.",
)
@_as_json
@click.pass_obj
def manifest(session: Session, manifest_id: int | None, as_json: bool) -> None:
    """Print the newest manifest, or the manifest with --id."""
    state = siltstone.admin.manifest(session.url, manifest_id, store_options=session.store_options)
    if as_json:
        _print_json(state)
        return
    rows = {}
    for name, value in state.items():
        if isinstance(value, dict):
            rows.update({f"{name}.{inner}": text for inner, text in value.items()})
        else:
            rows[name] = len(value) if isinstance(value, list) else value
    shown = ((name, "none" if value is None else value) for name, value in rows.items())
    _print_table(f"manifest {state['id']}", shown)


for _command in (
    probe,
    verify,
    compact,
    run_compactor,
    gc,
    run_gc,
    create_checkpoint,
    refresh_checkpoint,
    delete_checkpoint,
    list_checkpoints,
    clone,
    release_clone,
    destroy,
    restore,
    repair,
    versions,
    history,
    export,
    import_,
    promote,
    ingest,
    ingest_status,
    changes,
    consumers,
    forget_consumer,
):
    main.add_command(_command)
