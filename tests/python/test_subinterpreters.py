"""A second interpreter in the process is refused, and the first one still works."""

from __future__ import annotations

import pytest

# Python 3.13 renamed the module; its `run_string` returns errors instead of raising them.
PRELUDE = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def create(shared):
    try:
        return interpreters.create("legacy" if shared else "isolated")
    except TypeError:  # before Python 3.13
        return interpreters.create(isolated=not shared)

def tried(program, shared):
    second = create(shared)
    try:
        failed = interpreters.run_string(second, program)
    except Exception as error:
        failed = error
    finally:
        interpreters.destroy(second)
    return "ran" if failed is None else str(getattr(failed, "formatted", failed))
"""

FIRST = """
import siltstone
with siltstone.open("memory://first") as db:
    db[b"a"] = b"1"
    for shared in (True, False):
        for _ in range(3):
            print(tried("import siltstone", shared))
            assert db[b"a"] == b"1"
    db.put(b"b", b"2").wait()
"""

LAST = """
print(tried("import siltstone", True))
import siltstone
with siltstone.open("memory://first") as db:
    db.put(b"a", b"1").wait()
    print(db[b"a"])
"""

pytest.importorskip(
    "_interpreters" if __import__("sys").version_info >= (3, 13) else "_xxsubinterpreters"
)


def test_a_second_interpreter_is_refused_and_harms_nothing(python) -> None:
    status, out, err = python(PRELUDE + FIRST)
    assert status == 0, err
    refused = out.splitlines()
    assert len(refused) == 6
    # Newer interpreters refuse an interpreter with its own lock before they load the module.
    assert all("subinterpreter" in text for text in refused), out
    assert all("cannot be imported in a subinterpreter" in text for text in refused[:3]), out
    assert all("whole process" in text and "multiprocessing" in text for text in refused[:3])


def test_the_main_interpreter_imports_after_a_refusal(python) -> None:
    status, out, err = python(PRELUDE + LAST)
    assert status == 0, err
    refused, value = out.splitlines()
    assert "ImportError" in refused
    assert "cannot be imported in a subinterpreter" in refused
    assert value == "b'1'"
