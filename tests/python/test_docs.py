"""Every ``python`` and every ``sh`` example in README.md and docs/ runs unchanged.

The blocks of one page run in order and share their names, in an empty folder. Pages about Spark run
in their own interpreter, because they start a JVM and change the environment.
"""

from __future__ import annotations

import codeop
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import siltstone

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "README.md"
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {INDEX})]
SPARK = [page for page in PAGES if "import SparkSession" in page.read_text()]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(text: str) -> list[str]:
    """The code of each block, with the line numbers of the page."""
    return ["\n" * text[: found.start(1)].count("\n") + found[1] for found in FENCE.finditer(text)]


def run(page: str, text: str, names: dict[str, object]) -> None:
    for block in examples(text):
        exec(compile(block, page, "exec"), names)


def reference() -> dict[str, str]:
    """The pages of the API reference, by file name, as docs/reference.py makes them."""
    program = ROOT / "docs" / "reference.py"
    spec = importlib.util.spec_from_file_location("reference", program)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


REFERENCE = reference()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in SPARK], ids=lambda p: p.name
)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    assert examples(text), f"{page.name} shows nothing that runs"
    with key_service(monkeypatch) if '"kms"' in text else nullcontext():
        run(page.name, text, {"__name__": "example"})


@contextmanager
def key_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A simulation of AWS KMS in this process, with the key ``alias/siltstone``."""
    moto = pytest.importorskip("moto")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "simulated")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with moto.mock_aws():
        client = importlib.import_module("boto3").client("kms")
        key = client.create_key()["KeyMetadata"]["KeyId"]
        client.create_alias(AliasName="alias/siltstone", TargetKeyId=key)
        yield


@pytest.mark.parametrize(
    "page", [page for page in PAGES if SHELL.search(page.read_text())], ids=lambda p: p.name
)
def test_commands_run(page: Path, tmp_path: Path) -> None:
    """Runs in an empty folder, without the Python blocks of the page. All commands must succeed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for block in SHELL.finditer(page.read_text()):
        done = subprocess.run(
            ["sh", "-eux"],
            input=block[1],
            cwd=tmp_path,
            env={**os.environ, "PATH": programs},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", REFERENCE)
def test_examples_of_the_reference_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, REFERENCE[page], {"__name__": "example", "siltstone": siltstone})


def lost(text: str) -> list[str]:
    """The links of a page to pages or headings that the API reference does not have."""
    found = []
    for name, anchor in re.findall(r"\]\([^)#\s]*reference/([^)#/]+\.md)(?:#([^)]*))?\)", text):
        headings = re.findall(r"^#+ (.*)$", REFERENCE.get(name, ""), re.MULTILINE)
        anchors = {
            re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
        }
        if name not in REFERENCE or (anchor and anchor not in anchors):
            found.append(f"{name}#{anchor}")
    return found


LINKING = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "rfcs").glob("*.md")]


def test_links_into_the_reference_lead_somewhere() -> None:
    pages = [page for page in LINKING if page.parent.name != "reference"]
    assert {page.name: lost(page.read_text()) for page in pages if lost(page.read_text())} == {}
    text = "[a](reference/keys.md) [b](docs/reference/siltstone.md#reads) [c](reference/x.md)"
    assert lost(f"{text} [d](reference/keys.md#x)") == ["x.md#", "keys.md#x"]


@pytest.mark.slow
@pytest.mark.parametrize("page", SPARK, ids=lambda page: page.name)
def test_examples_with_spark_run(
    page: Path, python, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = "from pathlib import Path\nimport sys\n"
    program += "for part in Path(sys.argv[1]).read_text().split('\\0'):\n"
    program += "    exec(compile(part, sys.argv[2], 'exec'), globals())\n"
    Path("blocks").write_text("\0".join(examples(page.read_text())))
    status, _, errors = python(program, "blocks", page.name, timeout=240.0)
    assert status == 0, errors


def test_seven_pages_are_about_spark() -> None:
    names = [page.name for page in SPARK]
    of_docs = ["spark-copy.md", "spark-tables.md", "spark-workers.md", "tutorial-spark.md"]
    assert names == ["README.md", "howto-recipes.md", "howto-spark.md", *of_docs]


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([^)]+\.md)\)", INDEX.read_text()))
    assert {page.name for page in PAGES[1:]} <= linked
    assert {f"reference/{name}" for name in REFERENCE} <= linked


def test_the_first_screen_is_whole() -> None:
    """The first sixty lines: what it is, how to install it, ten lines of code, a picture, three
    measured numbers, when not to use it, and the two commands."""
    screen = (ROOT / "README.md").read_text().split("\n## ")[0]
    assert len(screen.splitlines()) <= 60
    for part in ("Install: ", "```python", "```text", "(benches/RESULTS.md)", "**Not for you**"):
        assert screen.count(part) == 1, part
    numbers = re.findall(r"^\| .* \| [\d.]+ [nµ]s \|$", screen, re.MULTILINE)
    assert len(numbers) == 3
    targets = re.findall(r"^    make (\w+) ", screen, re.MULTILINE)
    assert targets == ["demo", "test"]


def refused_by_a_prompt(text: str) -> list[str]:
    """Lines of the examples that an interactive prompt rejects when they are pasted. The prompt
    ends a block at a blank line, and only there."""
    refused = []
    for block in examples(text):
        pending: list[str] = []
        for number, line in enumerate([*block.splitlines(), ""], 1):
            pending.append(line)
            try:
                whole = codeop.compile_command("\n".join(pending), symbol="single")
            except SyntaxError:
                refused.append(f"{number}: {line}")
                whole = True
            if whole:
                pending = []
    return refused


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_can_be_pasted_at_a_prompt(page: Path) -> None:
    assert refused_by_a_prompt(page.read_text()) == []


def test_statements_that_a_prompt_refuses_are_found() -> None:
    loop, after = "for n in range(3):\n    print(n)\n", "print()\n"
    assert refused_by_a_prompt(f"```python\n{loop}\n{after}```\n") == []
    assert refused_by_a_prompt(f"```python\n{loop}{after}```\n") == ["4: print()"]
    inner = "class A:\n    a = 1\n\n    b = 2\n"
    assert refused_by_a_prompt(f"```python\n{inner}```\n") == ["5:     b = 2"]


def test_a_wrong_example_is_found_with_its_line() -> None:
    text = "# Page\n\n```python\nx = 1\n```\n\n```text\nnot python\n```\n"
    text += "\n```python\nassert x == 2\n```\n"
    blocks = examples(text)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    exec(compile(blocks[0], "page.md", "exec"), names)
    with pytest.raises(AssertionError) as failure:
        exec(compile(blocks[1], "page.md", "exec"), names)
    assert failure.traceback[-1].lineno == 11  # from 0
