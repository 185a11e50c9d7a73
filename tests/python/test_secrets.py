"""A secret in the store options must not appear in any output."""

from __future__ import annotations

import copy
import json
import pickle
import socket
import subprocess
import sys
import traceback

import pyarrow as pa
import pytest

import siltstone

CANARY = "cAnArY0123456789secret"
NAMED = ["secret_access_key", "session_token", "access_key_id"]


@pytest.fixture
def refused():
    """The endpoint of a server that does not exist."""
    with socket.socket() as bound:
        # It does not listen, and no other process gets the port.
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def store_options(endpoint: str) -> dict[str, str | bool]:
    options: dict[str, str | bool] = dict.fromkeys(NAMED[:2], CANARY)
    return {
        **options,
        "access_key_id": "AKIAPUBLICPART",
        "endpoint": endpoint,
        "region": "r",
        "allow_http": True,
    }


def said(error: BaseException) -> str:
    chain = "".join(traceback.format_exception(error))
    facts = f"{error!r} {error!s} {error.args} {vars(error)}"
    return chain + facts + repr(pickle.dumps(error))


@pytest.mark.parametrize("call", [siltstone.open, siltstone.open_reader])
def test_no_error_tells_a_secret(refused: str, call) -> None:
    with pytest.raises(siltstone.Unavailable, match="no connection") as caught:
        call("s3://bucket/db", store_options=store_options(refused), options={"deadline": 60})
    assert CANARY not in said(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"no_such_option": CANARY},
        {"secret_access_key": [CANARY]},
        {"secret_access_key": CANARY.encode()},
        {"endpoint": f"http://user:{CANARY}@[broken"},
    ],
)
def test_wrong_store_options_are_named_without_their_value(wrong) -> None:
    with pytest.raises((ValueError, TypeError, siltstone.Error)) as caught:
        siltstone.open_reader("s3://bucket/db", store_options=wrong, options={"deadline": 0.5})
    # The traceback shows the call itself, so only the texts of the package are checked.
    text = f"{caught.value!r} {caught.value!s} {getattr(caught.value, 'context', '')}"
    assert CANARY not in text


@pytest.mark.parametrize(
    "url",
    [
        f"s3://user:{CANARY}@bucket/db",
        f"s3://bucket/db?sig={CANARY}",
        f"az://c/p?sv=1&sig={CANARY}",
    ],
)
def test_secrets_in_urls_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(siltstone.Invalid) as caught:
        siltstone.open(url)
    assert CANARY not in f"{caught.value!r} {caught.value!s} {caught.value.context}"


@pytest.mark.parametrize("url", [f"s3:user:{CANARY}@bucket/db", f"AZ:/c/p?sig={CANARY}"])
def test_secrets_in_mistyped_urls_are_not_repeated(url: str) -> None:
    for call in (siltstone.open, siltstone.open_reader, siltstone.admin.verify):
        with pytest.raises(siltstone.Invalid, match="two slashes behind its scheme") as caught:
            call(url)
        assert CANARY not in f"{caught.value!r} {caught.value} {caught.value.context}"


def test_credentials_neither_show_nor_travel(url: str) -> None:
    siltstone.open(url).close()
    with pytest.raises(siltstone.Invalid, match="secret_access_key") as caught:
        siltstone.open_reader(url, store_options={"secret_access_key": CANARY})
    assert CANARY not in f"{caught.value!r} {caught.value.context}"
    with siltstone.open(url) as db, siltstone.open_reader(url) as reader:
        for handle in (db, reader, db.snapshot(), db.scan(), db.stats()):
            assert CANARY not in repr(handle)
        assert CANARY.encode() not in pickle.dumps(reader)


def test_secrets_of_the_environment_stay_there(refused: str, python) -> None:
    program = """
import sys, siltstone
try:
    siltstone.open_reader("s3://bucket/db", options={"deadline": 60},
        store_options={"endpoint": sys.argv[1], "allow_http": "true", "region": "r"})
except siltstone.Error as error:
    print(type(error).__name__, error, error.context)
"""
    status, out, err = python(
        program,
        refused,
        AWS_ACCESS_KEY_ID="AKIA",
        AWS_SECRET_ACCESS_KEY=CANARY,
        AWS_SESSION_TOKEN=CANARY,
        RUST_LOG="trace",
        RUST_BACKTRACE="full",
    )
    assert status == 0, err
    assert out.startswith("Unavailable open_reader: no connection")
    assert CANARY not in out + err


def test_the_command_line_repeats_no_secret(refused: str) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "siltstone.cli", "--path", f"s3://u:{CANARY}@bucket/db"),
            *("--store-option", f"endpoint={refused}"),
            *("--store-option", f"secret_access_key={CANARY}", "stats"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize("second", ["--store-option", None])
def test_the_command_line_shows_no_misplaced_store_option(second: str | None) -> None:
    texts = [f"secret_access_key={CANARY}"] if second is None else [second, f'{{"k":"{CANARY}"}}']
    done = subprocess.run(
        [
            *(sys.executable, "-m", "siltstone.cli", "--path", "s3://bucket/db"),
            *("--store-option", "region=r", *texts, "stats"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "store-option" in done.stderr
    assert CANARY not in done.stdout + done.stderr


def test_options_hold_no_store_options() -> None:
    with pytest.raises(siltstone.Invalid):
        siltstone.Options(secret_access_key=CANARY)
    assert copy.copy(siltstone.Options()) == siltstone.Options()


def frames_of(error: BaseException) -> list[dict[str, object]]:
    """The variables of every frame of the package in the traceback of an error."""
    found: list[dict[str, object]] = []
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None:
            continue
        links += [link.__cause__, link.__context__]
        trace = link.__traceback__
        while trace is not None:
            if "siltstone" in trace.tb_frame.f_code.co_filename.replace("test_secrets", ""):
                found.append(dict(trace.tb_frame.f_locals))
            trace = trace.tb_next
    return found


@pytest.mark.parametrize(
    "call",
    [
        lambda url, options: siltstone.open(url, store_options=options),
        lambda url, options: siltstone.open_reader(url, store_options=options),
        lambda url, options: siltstone.clone(url, parent=url + "/p", store_options=options),
        lambda url, options: siltstone.destroy(url, store_options=options),
        lambda url, options: siltstone.admin.verify(url, store_options=options),
        lambda url, options: siltstone.admin.gc(url, store_options=options),
        lambda url, options: siltstone.admin.export(url, url + "/e", store_options=options),
        lambda url, options: siltstone.ingest.Job(url, store_options=options),
        lambda url, options: siltstone.ingest.jobs(url, store_options=options),
        lambda url, options: siltstone.changes.latest(url, store_options=options),
        lambda url, options: siltstone.table.create(
            url, pa.schema([("a", pa.int64())]), key=["a"], store_options=options
        ),
    ],
)
def test_no_frame_shows_a_secret(call) -> None:
    wrong = {"secret_access_key": CANARY, "session_token": CANARY, "no_such_option": "x"}
    for options in (wrong, lambda: wrong, json.dumps(wrong), f"secret_access_key={CANARY}"):
        with pytest.raises((siltstone.Error, TypeError)) as caught:
            call("s3://bucket/db", options)
        assert CANARY not in f"{caught.value!r} {caught.value} {vars(caught.value)}"
        own = [frame for frame in frames_of(caught.value) if "call" not in frame]
        assert own
        shown = [f"{name}={value!r}" for frame in own for name, value in frame.items()]
        assert not [text for text in shown if CANARY in text]
