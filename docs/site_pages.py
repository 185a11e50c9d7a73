"""Hooks of MkDocs for `make site`: which files are pages, and how their Markdown is read.

The pages of the API reference come from docs/reference.py, which documents the siltstone that
Python imports. They are made in memory, so a build reads and writes no file of docs/reference/. A
page keeps its path in the repository, so links that work there work in the site. The hooks must
never change the meaning of a page: they adapt only Markdown that GitHub and MkDocs read in
different ways.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parents[1]
# Files that the site has, as patterns of paths in the repository.
SOURCES = (
    "*.md",
    "LICENSE",
    "docs/**/*.md",
    "docs/pictures/*.svg",
    "docs/growth/*.svg",
    "rfcs/*.md",
    "benches/RESULTS.md",
    "benches/notes/*.md",
    "crates/*/*.md",
    "fbs/README.md",
)
# The folder of the API reference, which git ignores.
REFERENCE = "docs/reference"
# A line that begins a list or a table, and one that may stand in a list before it.
BEGINS = re.compile(r"([-*+]|1\.) |\|")
NESTED = re.compile(r" {2,3}([-*+]|1\.) ")
CONTINUES = re.compile(r"([-*+]|\d+\.) |\||\s|$")


@cache
def reference() -> dict[str, str]:
    """Returns the pages of the API reference, by path in the repository."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {f"{REFERENCE}/{name}": text for name, text in module.pages().items()}


@cache
def sources() -> list[str]:
    """Returns the paths of all pages and pictures of the site, but for the API reference."""
    found = {path for pattern in SOURCES for path in ROOT.glob(pattern)}
    paths = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [path for path in paths if not path.startswith(f"{REFERENCE}/")]


def expanded(nav: list[Any], named: set[str]) -> list[Any]:
    """Returns the navigation with the files that each pattern matches, but for those in `named`."""
    items: list[Any] = []
    for item in nav:
        if isinstance(item, str) and "*" in item:
            items += [path for path in matching(item) if path not in named]
        elif isinstance(item, dict):
            items += [{title: below(rest, named)} for title, rest in item.items()]
        else:
            items.append(item)
    return items


def below(rest: Any, named: set[str]) -> Any:
    """Returns what stands below a title of the navigation."""
    if isinstance(rest, list):
        return expanded(rest, named)
    return expanded([rest], named) if "*" in rest else rest


def matching(pattern: str) -> list[str]:
    """Returns the pages that a pattern of the navigation matches."""
    paths = [*sources(), *reference()]
    return sorted(path for path in paths if PurePosixPath(path).match(pattern))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Sets what YAML can only say with tags of Python, and expands the navigation."""
    # The anchors of GitHub.
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    # `rfcs/0*.md` takes the template along, which is no decision but is linked.
    config.nav = expanded(config.nav or [], {"benches/notes/README.md"})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of docs/ by all files of the site, at their paths in the repository."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for path in sources():
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    for path, text in reference().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Adapts lists and tables. GitHub needs no blank line between a paragraph and a list or table,
    and two spaces before a list in a list, where MkDocs needs four."""
    lines: list[str] = []
    fenced = nested = False
    before = ""
    for line in markdown.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and BEGINS.match(line):
            other = before.startswith("|") != line.startswith("|")
            if before and (other or not CONTINUES.match(before)):
                lines.append("")
        if not fenced and line:
            nested = bool(NESTED.match(line)) or (nested and line.startswith(" "))
        lines.append(f"  {line}" if nested and line else line)
        before = line
    return "\n".join(lines)
