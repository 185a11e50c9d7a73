"""The documentation site (``make site``) builds without a warning, all of its links lead to a
target, and its search finds words of the pages, also in a browser. The workflows call only make
targets that exist.
"""

from __future__ import annotations

import html
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache, partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest

from chromium_for_tests import MISSING, Chromium, browser, program

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
PICTURES = {
    "docs/compaction": "levels.svg",
    "docs/durability": "life-of-a-write.svg",
    "docs/howto-clones": "clone-and-restore.svg",
    "docs/howto-ingest": "ingest-from-spark.svg",
    "docs/operations": "layout.svg",
}
# The parts of the site, as its readers look for them.
PARTS = ["Tutorials", "How-to guides", "Concepts", "Comparison", "Tuning", "Troubleshooting"]
PARTS += ["Reference"]

needs_material = pytest.mark.skipif(
    importlib.util.find_spec("material") is None,
    reason="mkdocs-material is not installed; the extra `test` brings it",
)


class Page(HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, _: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.targets += [values[name] or "" for name in ("href", "src") if name in values]
        self.anchors |= {values[name] or "" for name in ("id", "name") if name in values}


@cache
def parsed(path: Path) -> Page:
    return Page(path.read_text())


def lost(site: Path) -> list[str]:
    """The links and pictures of the site without an existing file or anchor."""
    found = []
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":  # its links are absolute: it is shown at any path
            continue
        for target in parsed(path).targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            to = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            anchor = unquote(parts.fragment)
            leads = to.is_file() and site in to.parents
            if leads and anchor and to.suffix == ".html":
                leads = anchor in parsed(to).anchors
            if not leads:
                found.append(f"{path.relative_to(site)}: {target}")
    return found


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site").resolve()
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@needs_material
def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    assert len(list(site.rglob("*.html"))) > 100
    assert lost(site) == []


@needs_material
def test_the_search_finds_words_of_the_pages(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    where = {entry["location"].split("#")[0] for entry in found if "clone" in entry["text"]}
    assert {"docs/howto-clones/", "rfcs/0029-clones/", "docs/reference/siltstone/"} <= where


@needs_material
@pytest.mark.parametrize("page", PICTURES)
def test_pages_show_their_pictures(site: Path, page: str) -> None:
    targets = parsed(site / page / "index.html").targets
    assert f"../pictures/{PICTURES[page]}" in targets
    assert (site / "docs" / "pictures" / PICTURES[page]).read_text().startswith("<svg ")


@needs_material
def test_the_site_has_its_parts(site: Path) -> None:
    tabs = re.findall(
        r'class="md-tabs__link">(.*?)</a>', (site / "index.html").read_text(), re.DOTALL
    )
    assert {*PARTS} <= {html.unescape(tab).strip() for tab in tabs}


@pytest.fixture
def chromium(tmp_path: Path) -> Iterator[Chromium]:
    path = program()
    if path is None:
        assert os.environ.get("SILTSTONE_REQUIRE_CHROMIUM") != "1", MISSING
        pytest.skip(MISSING)
    with browser(path, tmp_path) as found:
        yield found


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=site))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@needs_material
def test_a_browser_renders_pages_and_finds_a_word(served: str, chromium: Chromium) -> None:
    broken = "[...document.images].filter(each => !each.naturalWidth).length"
    for page in ("docs/durability", "docs/howto-clones", "docs/reference/siltstone"):
        chromium.open(f"{served}{page}/")
        assert chromium.value("document.querySelector('h1').offsetHeight") > 0
        assert chromium.value(
            "getComputedStyle(document.querySelector('.md-header')).position"
        ) in (
            "sticky",
            "fixed",
        )
        assert chromium.value(broken) == 0
        shown = chromium.value("document.querySelectorAll('article img').length")
        assert shown == (page in PICTURES)
    chromium.open(f"{served}?q=clone")
    first = "document.querySelector('.md-search-result__item a')?.innerText"
    assert "clone" in chromium.wait(first).lower()
    links = "[...document.querySelectorAll('.md-search-result__link')].map(each => each.pathname)"
    assert "/docs/howto-clones/" in chromium.value(links)
    assert [url for url in chromium.requested if not url.startswith((served, "data:"))] == []
    assert chromium.failures == []


@needs_material
def test_lists_and_tables_behind_a_paragraph_are_such(site: Path) -> None:
    """GitHub needs no blank line before lists and tables, and less indentation in nested lists; the
    site must render them as well."""
    visible = (site / "rfcs" / "0031-visible-ranges" / "index.html").read_text()
    assert re.search(r"<ol>\s*<li>(<p>)?A plan that picks t", visible)
    for path in site.rglob("*.html"):
        text = re.sub(r"<(pre|code)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        assert not re.search(r"<p>[^<]*\n(?:- |\|)", text), path.relative_to(site)


def test_a_lost_link_is_found(tmp_path: Path) -> None:
    links = '<a href="b/#x">1</a> <a href="b/#y">2</a> <a href="c/">3</a> <img src="d.svg">'
    (tmp_path / "b").mkdir()
    (tmp_path / "index.html").write_text(links + '<a href="https://example.org">4</a>')
    (tmp_path / "b" / "index.html").write_text('<h1 id="x"></h1><a href="../../e">5</a>')
    expected = ["b/index.html: ../../e", "index.html: b/#y", "index.html: c/", "index.html: d.svg"]
    assert lost(tmp_path.resolve()) == expected


def commands(workflow: object) -> list[str]:
    """The commands of all steps of a workflow."""
    assert isinstance(workflow, dict)
    jobs = workflow["jobs"].values()
    return [step["run"] for job in jobs for step in job.get("steps", []) if "run" in step]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the key `on` as true.
    assert {"name", True, "jobs", "permissions"} <= set(workflow)
    called = {
        word
        for command in commands(workflow)
        for line in re.findall(r"^\s*make (.*)$", command, re.MULTILINE)
        for word in line.split()
        if "=" not in word and not word.startswith("-")
    }
    assert called, f"{path.name} calls no make target"
    assert called <= TARGETS
    for job in workflow["jobs"].values():
        used = job.get("uses", "")
        assert not used.startswith("./") or (ROOT / used).is_file(), used


def test_there_are_workflows_for_tests_and_releases() -> None:
    assert {path.name for path in WORKFLOWS} >= {"release.yml", "test.yml"}
    assert {"site", "test", "wheels"} <= TARGETS
