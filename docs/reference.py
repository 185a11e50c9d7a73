"""Writes docs/reference/ from the docstrings, the stub and the tables of the built package.

    python docs/reference.py            write the pages
    python docs/reference.py --check    exit with 1 and name the pages that are out of date

git ignores the folder. The site takes the pages from `pages` (docs/site_pages.py). Any importable
siltstone is enough: an installed wheel, or python/ on PYTHONPATH with a built extension.

The sources of the pages are the stub of the compiled module (``_native.pyi``), docstrings, the
tables of options and figures, and the help of the commands.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

import siltstone
from siltstone import _native, cli

FOLDER = Path(__file__).resolve().parent / "reference"
STUB = ast.parse((Path(siltstone.__file__).parent / "_native.pyi").read_text())
IN_STUB = {
    node.name: node for node in STUB.body if isinstance(node, ast.ClassDef | ast.FunctionDef)
}
MADE = "<!-- Made by docs/reference.py: change the docstrings, then run `make docs`. -->"
# Groups of options and their classes.
GROUPS = {
    "compactors": "Compactors",
    "gc": "Gc",
    "readers": "Readers",
    "windows": "Windows",
    "writes": "Writes",
}
# Public modules besides `siltstone` itself.
MODULES = [
    "admin",
    "aio",
    "changes",
    "compaction",
    "ingest",
    "keys",
    "lsm",
    "mapping",
    "merging",
    "spark",
    "table",
    "telemetry",
    "exceptions",
]
# Methods that are shown in operator notation.
NOTATIONS = {
    "__getitem__": "handle[key]",
    "__setitem__": "handle[key] = value",
    "__delitem__": "del handle[key]",
    "__contains__": "key in handle",
    "__iter__": "iter(handle)",
    "__len__": "len(handle)",
    "__await__": "await handle",
    "__aiter__": "async for … in handle",
}
WIDE = 88
# Maximum length of a line of Markdown prose, which tests/tidy checks.
PROSE = 120

Method = ast.FunctionDef | ast.AsyncFunctionDef


def pages() -> dict[str, str]:
    """Returns all pages by file name."""
    made = {"siltstone.md": surface(), "options.md": options(), "stats.md": stats()}
    made["command-line.md"] = command_line()
    for name in MODULES:
        if importlib.util.find_spec(f"siltstone.{name}"):
            made[f"{name}.md"] = module_page(importlib.import_module(f"siltstone.{name}"))
    return {name: f"{MADE}\n\n{text.strip()}\n" for name, text in made.items()}


# --- Docstrings -----------------------------------------------------------------------------------


def markdown(docstring: str | None) -> str:
    """Converts a docstring: fields become a list, indented paragraphs code, and tables tables."""
    text = inspect.cleandoc(docstring or "").replace("``", "`")
    out: list[str] = []
    code: list[str] = []
    for paragraph in [*re.split(r"\n\s*\n", text), ""]:
        if paragraph.startswith("    "):
            code.append(paragraph)
            continue
        if code:
            out.append("```python\n" + textwrap.dedent("\n\n".join(code)).rstrip() + "\n```")
            code = []
        out.append(table(paragraph) if paragraph.startswith("====") else fields(paragraph))
    return "\n\n".join(part for part in out if part)


def fields(paragraph: str) -> str:
    """Converts `:param x: text` and similar fields to a list. Other lines are unchanged."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        found = re.match(r":(param|raises|returns?)\s*([^:]*):\s*(.*)", line)
        if not found:
            lines.append(line)
            continue
        kind, names, text = found.groups()
        if lines and not lines[-1].startswith(("-", " ")):
            lines.append("")
        label = {"param": f"`{names}`", "raises": f"raises **{names}**"}.get(kind, "returns")
        lines.append(f"- {label}: {text}")
    return "\n".join(lines)


def table(paragraph: str) -> str:
    """Converts a table of two columns between lines of `=`."""
    rows = [line.split(None, 1) for line in paragraph.splitlines() if not line.startswith("====")]
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {text} |" for name, text in rows)


# --- Names ----------------------------------------------------------------------------------------


def signature(name: str, node: Method, *, method: bool) -> str:
    """Returns the signature as in the code, over several lines if it is long."""
    arguments = ast.parse(ast.unparse(node)).body[0].args  # type: ignore[attr-defined]
    if method and arguments.posonlyargs:
        arguments.posonlyargs.pop(0)
    elif method and arguments.args:
        arguments.args.pop(0)
    prefix = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    answer = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{prefix}{name}({ast.unparse(arguments)}){answer}"
    if len(line) <= WIDE:
        return line
    parts = re.split(r", (?![^\[(]*[\])])", ast.unparse(arguments))
    inner = "".join(f"    {part},\n" for part in parts)
    return f"{prefix}{name}(\n{inner}){answer}"


def is_marked(node: Method, mark: str) -> bool:
    """Whether `node` has this decorator."""
    return any(isinstance(found, ast.Name) and found.id == mark for found in node.decorator_list)


def methods(node: ast.ClassDef) -> Iterator[str]:
    """Yields a section for each public member of a class. Overloads share a section."""
    together: dict[str, list[Method]] = {}
    for item in node.body:
        if isinstance(item, Method) and (not item.name.startswith("_") or item.name in NOTATIONS):
            together.setdefault(item.name, []).append(item)
    for name, nodes in together.items():
        text = next((found for found in map(ast.get_docstring, nodes) if found), None)
        if name in NOTATIONS:
            shown = NOTATIONS[name]
        elif is_marked(nodes[0], "property"):
            shown = f"{name}: {ast.unparse(nodes[0].returns or ast.Constant(...))}"
        else:
            static = is_marked(nodes[0], "staticmethod")
            # The implementation behind overloads has less precise types.
            typed = [one for one in nodes if is_marked(one, "overload")] or nodes
            shown = "\n".join(signature(name, one, method=not static) for one in typed)
        if text or name not in NOTATIONS:
            yield f"#### {name}\n\n```text\n{shown}\n```\n\n{markdown(text)}"


def attributes(node: ast.ClassDef) -> Iterator[str]:
    """Yields the public fields of a class that have a docstring."""
    for item, after in zip(node.body, node.body[1:], strict=False):
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
            yield listed(f"`{item.target.id}: {ast.unparse(item.annotation)}`: {text}")


def listed(text: str) -> str:
    """Returns a list item, wrapped to the width of Markdown prose."""
    return textwrap.fill(
        text,
        PROSE,
        initial_indent="- ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def definition(module: ModuleType, name: str) -> ast.stmt | None:
    """Returns the definition of `name`: in the stub for compiled names, otherwise in the source."""
    found = getattr(module, name)
    # A compiled object may be exported under another name.
    compiled = getattr(found, "__name__", name)
    if getattr(_native, compiled, None) is found:
        return IN_STUB.get(compiled)
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return None
    # Look in both files, because the `__module__` of a class may be another module.
    defined = sys.modules[getattr(found, "__module__", module.__name__)]
    for place in (module, defined):
        for node in ast.parse(inspect.getsource(place)).body:
            if isinstance(node, ast.ClassDef | Method) and node.name == name:
                return node
    return None


def section(module: ModuleType, name: str) -> str:
    """Returns the section of a class or function."""
    node = definition(module, name)
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(base for base in map(ast.unparse, node.bases) if base[0] != "_")
        head = f"### class {name}" + (f"({bases})" if bases else "")
        inherits = [base for base in map(ast.unparse, node.bases) if base in IN_STUB]
        reads = "#reads" if module is siltstone else "siltstone.md#reads"
        shares = {"_Reads", "_Lookups"} & {*inherits}
        note = f"It also has all of [Reads]({reads})." if shares else ""
        members = "\n".join(attributes(node)) if module is not siltstone.stats else ""
        parts = [head, markdown(class_text(module, name, node)), note, members, *methods(node)]
        return "\n\n".join(part for part in parts if part)
    if isinstance(node, Method):
        shown = signature(name, node, method=False)
        text = markdown(ast.get_docstring(node))
        return f"### {name}\n\n```text\n{shown}\n```\n\n{text}"
    return ""


def class_text(module: ModuleType, name: str, node: ast.ClassDef) -> str | None:
    """Returns the docstring of a class as written; that of Options is extended at import."""
    return ast.get_docstring(node) or inspect.getdoc(getattr(module, name))


# --- Pages ----------------------------------------------------------------------------------------


def surface() -> str:
    """Returns the page of the package: functions, the shared reads, and classes."""
    names = [name for name in siltstone.__all__ if hasattr(siltstone, name)]
    errors = set(siltstone.exceptions.__all__)
    functions = [name for name in names if inspect.isfunction(getattr(siltstone, name))]
    classes = [
        name for name in names if inspect.isclass(getattr(siltstone, name)) and name not in errors
    ]
    shared = IN_STUB["_Lookups"]
    assert isinstance(shared, ast.ClassDef)
    # The first paragraph of the docstring describes the stub itself.
    rules = markdown(ast.get_docstring(STUB)).partition("\n\n")[2]
    parts = ["# siltstone", rules]
    parts += ["## Functions", *(section(siltstone, name) for name in functions)]
    parts += ["## Reads", markdown(ast.get_docstring(shared)), *methods(shared)]
    plain = [name for name in classes if name not in {"Options", "Stats", *GROUPS.values()}]
    parts += ["## Classes", "`Options` has [a page](options.md), and so has [`Stats`](stats.md)."]
    return "\n\n".join([*parts, *(section(siltstone, name) for name in plain)])


def module_page(module: ModuleType) -> str:
    """Returns the page of a module with all its public names."""
    sections = (section(module, name) for name in getattr(module, "__all__", []))
    parts = [f"# {module.__name__}", markdown(module.__doc__), *sections]
    return "\n\n".join(part for part in parts if part)


def cell(text: object) -> str:
    """Escapes text for a table cell."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def options() -> str:
    """Returns the page of options: the top-level table, then a table for each group."""
    rows: dict[str, list[str]] = {}
    for name, kind, default, span, meaning in _native.option_table():
        shown = f"{default:,}" if kind == "bytes" and default is not None else default
        row = f"| `{name}` | {shown} | {span} | {cell(meaning)} |"
        group = name.rpartition(".")[0]
        if group and group not in rows:
            link = f"[`{GROUPS[group]}`](#class-{GROUPS[group].lower()})"
            rows[""].append(f"| `{group}` | | a group | {link} |")
        rows.setdefault(group, []).append(row)
    parts = ["# Options"]
    for group, own in rows.items():
        node = definition(siltstone, GROUPS.get(group, "Options"))
        assert isinstance(node, ast.ClassDef)
        parts += [f"### class {node.name}"] if group else []
        head = ["| option | default | range | meaning |", "| --- | --- | --- | --- |"]
        parts += [markdown(ast.get_docstring(node)), "\n".join([*head, *own])]
    return "\n\n".join(parts)


def stats() -> str:
    """Returns the page with the table of figures."""
    lines = ["| figure | unit | of | meaning |", "| --- | --- | --- | --- |"]
    for name, group, unit, meaning, _ in _native.stat_table():
        lines.append(f"| `{name}` | {unit} | {group} | {cell(meaning)} |")
    text = markdown(inspect.getdoc(siltstone.Stats))
    return "\n\n".join(["# Stats", text, "\n".join(lines)])


def command_line() -> str:
    """Returns the page with the help of the program and of each command."""
    parts = ["# Command line", markdown(cli.__doc__)]
    top = click.Context(cli.main, info_name="siltstone", terminal_width=WIDE)
    for name in ["", *cli.main.list_commands(top)]:
        command = cli.main.get_command(top, name) if name else cli.main
        context = click.Context(
            command or cli.main,
            info_name=name or "siltstone",
            parent=top if name else None,
            terminal_width=WIDE,
        )
        text = (command or cli.main).get_help(context)
        parts.append(f"## siltstone {name}".rstrip() + f"\n\n```text\n{text.strip()}\n```")
    return "\n\n".join(parts)


def main() -> int:
    """Writes or checks the pages. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    made = pages()
    there = {path.name: path.read_text() for path in FOLDER.glob("*.md")}
    stale = sorted(name for name in {*made, *there} if made.get(name) != there.get(name))
    for name in stale:
        if not check and name in made:
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / name).write_text(made[name])
        elif not check:
            (FOLDER / name).unlink()
        sys.stdout.write(f"{'out of date' if check else 'written'}: {name}\n")
    return int(bool(stale) and check)


if __name__ == "__main__":
    sys.exit(main())
