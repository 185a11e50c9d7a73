"""`siltstone.keys`: keys sort like tuples, and decode to the same parts."""

from __future__ import annotations

import itertools
import math
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum, StrEnum

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import siltstone
from siltstone.keys import pack, prefix_range, unpack

ONE = uuid.UUID(int=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Frozen values: tests/tuple.rs of the crate has more of them.
GOLDEN = [
    (None, "01"),
    (False, "02"),
    (True, "03"),
    (-(2**64), "17f6feffffffffffffffff"),
    (-1, "1ffe"),
    (0, "20"),
    (1, "2101"),
    (256, "220100"),
    (2**63, "288000000000000000"),
    (2**64, "2909010000000000000000"),
    (-1.5, "304007ffffffffffff"),
    (0.0, "308000000000000000"),
    (math.nan, "30fff8000000000000"),
    (Decimal("-Infinity"), "3801"),
    (Decimal(-123), "3802defde6c3"),
    (Decimal(0), "3803"),
    (Decimal("0.5"), "38041ffe64"),
    (Decimal("NaN"), "3806"),
    (date(1970, 1, 1), "4080000000"),
    (EPOCH + timedelta(seconds=1), "4480000000000f4240"),
    ("a\0b", "506100ff620000"),
    (b"\0\xff", "5800ffff0000"),
    (ONE, "6000000000000000000000000000000001"),
]


def test_golden_bytes() -> None:
    keys = [pack(part) for part, _ in GOLDEN]
    assert [key.hex() for key in keys] == [expected for _, expected in GOLDEN]
    assert keys == sorted(keys)
    for part, key in zip((part for part, _ in GOLDEN), keys, strict=True):
        (out,) = unpack(key)
        assert type(out) is type(part)
        assert out == part or part != part  # noqa: PLR0124


# Types in their order. Parts of one type compare as in Python, with the exceptions below.
TYPES = [type(None), bool, int, float, Decimal, date, datetime, str, bytes, uuid.UUID]


class Largest:
    """NaN: larger than every number, and equal to itself."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return not isinstance(other, Largest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Largest)

    __hash__ = None


def placed(part):
    """A value that compares as the part does within a key."""
    rank = TYPES.index(type(part))
    if part is None:
        return (rank,)
    if isinstance(part, float | Decimal) and math.isnan(part):
        return (rank, Largest())
    return (rank, part)


def ordered(parts):
    return tuple(map(placed, parts))


ZONES = [UTC, timezone(timedelta(hours=-5)), timezone(timedelta(hours=5, minutes=45))]
INTS = st.integers(-(2**2040) + 1, 2**2040 - 1) | st.integers(-70_000, 70_000)
DECIMALS = st.decimals(allow_nan=False) | st.just(Decimal("NaN")) | st.just(Decimal("-0.0"))
MOMENTS = st.datetimes(
    # A day from either end, so that the value is a valid datetime in every time zone.
    min_value=datetime.min + timedelta(days=1),  # noqa: DTZ901
    max_value=datetime.max - timedelta(days=1),  # noqa: DTZ901
    timezones=st.sampled_from(ZONES),
)
PART = (
    st.none()
    | st.booleans()
    | INTS
    | st.floats()
    | DECIMALS
    | st.dates()
    | MOMENTS
    | st.text(alphabet="\0\x01aä\U00010000", max_size=4)
    | st.binary(max_size=4)
    | st.uuids()
)
TUPLE = st.lists(PART, min_size=1, max_size=4).map(tuple)


@given(TUPLE, TUPLE)
@example(("a", "b"), ("ab", ""))
@example(("a",), ("a", None))
@example((1,), (1.0,))
@example((Decimal("1.5"),), (Decimal("1.50"),))
@example((0.0,), (-0.0,))
def test_keys_compare_as_tuples(one, other) -> None:
    first, second = pack(*one), pack(*other)
    assert (first < second) == (ordered(one) < ordered(other))
    assert (first == second) == (ordered(one) == ordered(other))


@given(TUPLE)
def test_parts_come_back(parts) -> None:
    out = unpack(pack(*parts))
    assert ordered(out) == ordered(parts)
    assert pack(*out) == pack(*parts)


@given(TUPLE, TUPLE, st.integers(0, 3))
@example((True,), (True, None), 2)
def test_a_range_holds_what_begins_with_its_parts(parts, other, cut) -> None:
    prefix = parts[:cut]
    start, end = prefix_range(*prefix)
    assert start <= pack(*parts) < end
    begins = ordered(other)[: len(prefix)] == ordered(prefix)
    assert (start <= pack(*other) < end) == begins


@given(st.binary(max_size=30) | TUPLE.map(lambda parts: pack(*parts)[:-1]))
@example(b"\x38\x04\x28" + b"\x7f" + b"\xff" * 7 + b"\x14")
def test_any_bytes_are_corruption_or_a_key(key) -> None:
    try:
        parts = unpack(key)
    except siltstone.Corruption:
        return
    assert pack(*parts) == key


def test_parts_that_come_back_in_another_form() -> None:
    def back(part):
        return unpack(pack(part))[0]

    assert str(back(Decimal("1.500"))) == "1.5"
    assert str(back(Decimal("-0.0"))) == "0"
    assert math.copysign(1, back(-0.0)) == 1
    noon = datetime(2026, 1, 1, 12, 0, 0, 5, tzinfo=ZONES[1])
    assert back(noon) == noon
    assert back(noon).tzinfo is UTC
    for buffer in (bytearray(b"a\0"), memoryview(b"a\0")):
        assert back(buffer) == b"a\0"


def test_subclasses_and_numpy_are_what_they_say() -> None:
    class Colour(IntEnum):
        RED = 1

    class Name(StrEnum):
        RED = "red"

    numpy = pytest.importorskip("numpy")
    assert pack(Colour.RED, Name.RED) == pack(1, "red")
    assert pack(numpy.int64(-7), numpy.uint8(7), numpy.float64(1.5)) == pack(-7, 7, 1.5)
    assert pack(numpy.float32(1.5), numpy.bool_(True)) == pack(1.5, True)


def test_an_invalid_part_is_a_type_error() -> None:
    for wrong in ([], (1,), {}, object(), 1j, timedelta(1), str):
        with pytest.raises(TypeError, match=r"parts\[1\]: a key is made of None, bool, int"):
            pack("a", wrong)
    with pytest.raises(TypeError, match=r"parts\[0\] has no time zone"):
        pack(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError, match="encode it"):
        unpack("a")


def test_a_part_without_an_order_is_invalid() -> None:
    class Finer(datetime):
        nanosecond = 1

    for wrong in (
        (2**2040,),
        (-(2**2040),),
        (Decimal("sNaN"),),
        (Finer(2026, 1, 1, tzinfo=UTC),),
        (b"x" * 65_533,),
        (),
    ):
        with pytest.raises(siltstone.Invalid):
            pack(*wrong)
    with pytest.raises(siltstone.Invalid, match="in the years 1 to 9999") as failure:
        pack("a", datetime.min.replace(tzinfo=timezone(timedelta(hours=1))))
    assert failure.value.context == {"part": "1"}
    with pytest.raises(UnicodeEncodeError):
        pack("\ud800")
    assert unpack(pack(2**2040 - 1, 1 - 2**2040)) == (2**2040 - 1, 1 - 2**2040)
    assert len(pack(b"x" * 65_532)) == 65_535


def test_a_plain_key_is_no_tuple() -> None:
    with pytest.raises(siltstone.Corruption, match="not made of parts by pack") as failure:
        unpack(pack("a") + b"plain")
    assert failure.value.context == {"offset": "4"}


def test_in_a_database() -> None:
    towns = [
        (country, -n, name) for country in ("DE", "D", "DEN") for n in (7, 300) for name in "ab"
    ]
    with siltstone.open(f"memory://{uuid.uuid4().hex}") as db:
        for town in towns:
            db[pack(*town)] = b""
        assert [unpack(key) for key in db] == sorted(towns)
        for cut, depth in itertools.product(sorted(towns), range(4)):
            found = [unpack(key) for key in db.keys(*prefix_range(*cut[:depth]))]
            assert found == [town for town in sorted(towns) if town[:depth] == cut[:depth]]
        db.delete_range(*prefix_range("DE"))
        assert {unpack(key)[0] for key in db} == {"D", "DEN"}
        by_parts = db.mapping(key=(lambda parts: pack(*parts), unpack))
        by_parts["D", 1] = b"one"
        assert list(by_parts)[-5] == ("D", 1)
