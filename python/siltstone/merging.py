"""Merge operators: functions that fold the operands of `merge` into a value when it is read.

    import siltstone

    with siltstone.open("memory://merging", merge_operator="sum_i64") as db:
        for _ in range(3):
            db.merge(b"visits", (1).to_bytes(8, "little", signed=True))
        assert int.from_bytes(db[b"visits"], "little", signed=True) == 3

Three operators are built in: ``"sum_i64"`` (8 bytes, little-endian, signed; it wraps around),
``"max"`` (the larger value by bytes) and ``"append"``. Any other operator is a function that every
process can import, or a `MergeOperator` of such functions. The database records the name of its
operator, and refuses an operator with another name.
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
"""Returns the value of a key. The arguments are the key, its previous value (None if it had none),
and the operands, oldest first."""
FoldOperands = Callable[[bytes, list[bytes]], bytes | None]
"""Returns one operand with the effect of several operands, oldest first; None if there is no such
operand."""

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class MergeOperator:
    """A merge operator: its functions, and the name that the database records.

    Folding must be associative: folding some operands first and the others later must give the same
    value. The same arguments must always give the same bytes. Reads and compactions call the
    functions, in any thread. An exception of a function is the cause of the Invalid that a read
    raises. A compaction then keeps the operands unchanged, so no data is lost.

    :param name: the name that the database records: 1 to 255 characters, not a built-in name.
    :param fold: see `Fold`.
    :param fold_operands: see `FoldOperands`. With it, a compaction combines several operands into
        one.
    :raises TypeError: if the name is not a str, or a function is not callable.
    :raises Invalid: if the name is empty, too long, or that of a built-in operator.
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
"""A `MergeOperator`; a `Fold` function, whose name is then ``module:function``; the name of a
built-in operator; or ``"module:name"`` of one of the first two."""


def described(operator: MergeOperatorSource | None) -> str | tuple[str, Any, Any] | None:
    """Converts an operator for the compiled module: a built-in name, or a name with its functions.

    :raises TypeError: if `operator` has an unsupported type.
    :raises Invalid: if a name is unknown, or other processes cannot import a function.
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
