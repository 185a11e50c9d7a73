"""Merge operators: what `merge` adds is folded into the value when it is read.

    import siltstone

    with siltstone.open("memory://merging", merge_operator="sum_i64") as db:
        for _ in range(3):
            db.merge(b"visits", (1).to_bytes(8, "little", signed=True))
        assert int.from_bytes(db[b"visits"], "little", signed=True) == 3

Three are built in: ``"sum_i64"`` (8 bytes, little-endian, signed; it wraps), ``"max"`` (the larger
by bytes) and ``"append"``. Any other is a function that every process can import, or a
`MergeOperator` of such functions. The database records its name, and refuses another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from siltstone import _native
from siltstone._importable import name_of, resolve
from siltstone.exceptions import Invalid

__all__ = ["Fold", "FoldOperands", "MergeOperator", "MergeOperatorSource"]

Fold = Callable[[bytes, bytes | None, list[bytes]], bytes]
"""Gives the value of a key (first argument) after operands, oldest first, are applied to its value
before (None: it had none)."""
FoldOperands = Callable[[bytes, list[bytes]], bytes | None]
"""Gives one operand that does what these do one after the other, or None where there is none."""

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class MergeOperator:
    """How operands are folded, under a name that the database records.

    Folding must be associative: some operands first and the rest later must give the same value,
    and the same arguments always the same bytes. The functions are called by reads and by
    compactions, in any thread. What they raise reaches the reader as the cause of an Invalid; a
    compaction leaves the operands as they are, so nothing is lost.

    :param name: what the database records: 1 to 255 characters, no built-in name.
    :param fold: see `Fold`.
    :param fold_operands: see `FoldOperands`; with it, a compaction makes one operand of many.
    """

    name: str
    fold: Fold
    fold_operands: FoldOperands | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"a merge operator's name is a str, not {type(self.name).__name__}")
        if not 1 <= len(self.name) <= _LONGEST_NAME:
            raise Invalid(f"a merge operator's name has 1 to {_LONGEST_NAME} characters")
        if self.name in _native.operator_names():
            raise Invalid(f"the merge operator {self.name!r} is built in; choose another name")
        for function in (self.fold, self.fold_operands):
            if function is not None and not callable(function):
                raise TypeError(f"{function!r} cannot be called")


MergeOperatorSource = MergeOperator | Fold | str
"""A `MergeOperator`; a function `fold`, whose name is then ``module:function``; the name of a
built-in operator; or ``"module:name"`` of one of the first two."""


def described(operator: MergeOperatorSource | None) -> str | tuple[str, Any, Any] | None:
    """What the compiled part takes: a built-in name, or a name with its functions.

    :raises Invalid: a name that nothing has, a function that other processes cannot import.
    """
    if isinstance(operator, str):
        if ":" not in operator:
            return operator
        operator = resolve(operator, "the merge operator")
    if operator is None:
        return None
    if isinstance(operator, MergeOperator):
        return (operator.name, operator.fold, operator.fold_operands)
    if not callable(operator):
        kind = type(operator).__name__
        raise TypeError(f"a merge operator is a MergeOperator, a function or a name, not {kind}")
    name = name_of(operator)
    if name is None or "<" in name:
        raise Invalid(
            f"the merge operator {name} has no name that another process could import: define it "
            "at the top of a module, or name it by a MergeOperator"
        )
    return (name, operator, None)
