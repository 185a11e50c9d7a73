"""A database as a `dict`-like mapping, with codecs for keys and values."""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterator,
    KeysView,
    MutableMapping,
    ValuesView,
)
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, final

from siltstone.exceptions import Conflict

if TYPE_CHECKING:
    from siltstone._native import Database

__all__ = ["Mapping"]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_RAISES: Any = object()
"""Stands for a default that was not given."""

Codec = type[bytes] | type[str] | tuple[Callable[[Any], bytes], Callable[[bytes], Any]]
"""`bytes`: no conversion. `str`: UTF-8. Otherwise a pair of functions: encode to bytes, and decode
from bytes."""


@final
class Mapping(MutableMapping[_Key, _Value], Generic[_Key, _Value]):
    """A database as a mutable mapping, from `Database.mapping`, for code that takes a `dict`, like
    `shelve.Shelf`. Keys are in the order of their bytes.

    The mapping holds no data and no position. It can be used from any thread, and several mappings
    of one database see the same data. It does not close the database.

    - `len` scans and counts all keys, also for a view.
    - `del` of an absent key raises KeyError, which costs a read.
    - `pop` and `setdefault` keep what another caller writes meanwhile. `popitem` reads and then
      deletes; another caller may write in between.
    - `clear` is one write. An iteration of a view reads one state of the database.
    """

    __slots__ = ("__weakref__", "_database", "_key", "_value")

    def __init__(self, database: Database, key: Codec, value: Codec) -> None:
        self._database = database
        self._key = _functions(key, "key")
        self._value = _functions(value, "value")

    def __getitem__(self, key: _Key) -> _Value:
        found = self._database.get(self._key[0](key))
        if found is None:
            raise KeyError(key)
        return cast("_Value", self._value[1](found))

    def __setitem__(self, key: _Key, value: _Value) -> None:
        self._database[self._key[0](key)] = self._value[0](value)

    def __delitem__(self, key: _Key) -> None:
        if self._database.pop(self._key[0](key), None) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return self._key[0](key) in self._database

    def __iter__(self) -> Iterator[_Key]:
        decode = self._key[1]
        return (decode(key) for key in self._database)

    def __reversed__(self) -> Iterator[_Key]:
        decode = self._key[1]
        return (decode(key) for key in self._database.keys(reverse=True))

    def __len__(self) -> int:
        """Counts the keys; every key is read."""
        return sum(1 for _ in self._database)

    def __bool__(self) -> bool:
        return any(True for _ in self._database.keys(limit=1))

    def keys(self) -> KeysView[_Key]:
        """Returns a view of the keys."""
        return KeysView(self)

    def items(self) -> ItemsView[_Key, _Value]:
        """Returns a view of the keys and values, which are read together."""

        def read() -> Iterator[tuple[_Key, _Value]]:
            key, value = self._key[1], self._value[1]
            return ((key(one), value(other)) for one, other in self._database.items())

        return _Items(self, read)

    def values(self) -> ValuesView[_Value]:
        """Returns a view of the values."""

        def read() -> Iterator[_Value]:
            decode = self._value[1]
            return (decode(value) for value in self._database.values())

        return _Values(self, read)

    def pop(self, key: _Key, default: Any = _RAISES) -> Any:
        """Deletes the key and returns its value. If several callers pop the key concurrently, one
        of them gets the value.

        :raises KeyError: if the key is absent and there is no `default`.
        """
        found = self._database.pop(self._key[0](key), None)
        if found is not None:
            return self._value[1](found)
        if default is _RAISES:
            raise KeyError(key)
        return default

    def setdefault(self, key: _Key, default: Any = None) -> Any:
        """Returns the value of the key; sets it to `default` if the key is absent. A value that
        another caller writes meanwhile is kept and returned.
        """
        encoded = self._key[0](key)
        while (found := self._database.get(encoded)) is None:
            try:
                self._database.put(encoded, self._value[0](default), if_absent=True)
            except Conflict:
                # With `read_durable_only` the value that is there can be read once it is durable.
                self._database.flush()
            else:
                return default
        return self._value[1](found)

    def clear(self) -> None:
        """Deletes all keys with one write."""
        self._database.delete_range(start=b"\x00")

    def sync(self) -> None:
        """Returns when all writes are durable; the counterpart of `shelve.Shelf.sync`."""
        self._database.flush()

    def __repr__(self) -> str:
        return f"<siltstone.Mapping of {self._database!r}>"


class _Items(ItemsView[_Key, _Value]):
    """Keys and values, read together."""

    def __init__(
        self,
        mapping: Mapping[_Key, _Value],
        read: Callable[[], Iterator[tuple[_Key, _Value]]],
    ) -> None:
        super().__init__(mapping)
        self._read = read

    def __iter__(self) -> Iterator[tuple[_Key, _Value]]:
        return self._read()


class _Values(ValuesView[_Value]):
    """Values, read without a look-up for each."""

    def __init__(self, mapping: Mapping[Any, _Value], read: Callable[[], Iterator[_Value]]) -> None:
        super().__init__(mapping)
        self._read = read

    def __iter__(self) -> Iterator[_Value]:
        return self._read()


def _same(given: bytes) -> bytes:
    return given


def _encoded(text: str) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"expected str, not {type(text).__name__}: the mapping was made for text")
    return text.encode()


def _functions(codec: Codec, name: str) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Returns the encoder and the decoder of a codec.

    :raises TypeError: if `codec` is not a codec.
    """
    if codec is bytes:
        return _same, _same
    if codec is str:
        return _encoded, bytes.decode
    if isinstance(codec, tuple):
        both = 2
        if len(codec) == both and callable(codec[0]) and callable(codec[1]):
            return codec
    raise TypeError(f"{name} is bytes, str, or two functions: (encode, decode)")
