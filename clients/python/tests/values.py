"""Values that agents pass to tools and get from them, by name."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import random
import uuid
import zoneinfo
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import numpy
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    computed_field,
    create_model,
    field_serializer,
)


class Color(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(int, enum.Enum):
    LOW = 1
    HIGH = 3


class Step(enum.IntEnum):
    ONE = 1


class Class(str, enum.Enum):  # noqa: UP042
    ECONOMY = "economy"


class Seat(enum.StrEnum):
    WINDOW = "window"


class Rate(float, enum.Enum):
    HALF = 0.5


class Shape(enum.Enum):
    BOX = (1, 2.5)


class Place(NamedTuple):
    row: int
    day: dt.date


class Count(int):
    """An integer with a text of its own."""

    def __repr__(self) -> str:
        return f"Count({int(self)})"

    __str__ = __repr__


class Name(str):
    __slots__ = ()


class Ratio(float):
    def __repr__(self) -> str:
        return "Ratio"


@dataclasses.dataclass(frozen=True)
class Stop:
    at: dt.datetime | None
    who: frozenset[str] = frozenset()


@dataclasses.dataclass
class Trip:
    stops: list[Stop]
    places: dict[int, Place]
    price: decimal.Decimal


class Mail(BaseModel):
    to: list[str]
    day: dt.date
    sent: dt.datetime | None = None
    wait: dt.timedelta = dt.timedelta(0)
    price: decimal.Decimal = decimal.Decimal("1.10")
    id: uuid.UUID = uuid.UUID(int=5)
    color: Color = Color.RED
    level: Level = Level.HIGH
    body: bytes = b"text"
    at: Place | None = None
    by_day: dict[int, str] = {}
    path: pathlib.PurePosixPath | None = None


class Group(BaseModel):
    to: set[str]
    more: frozenset[str] = frozenset()
    any: Any = None
    deep: dict[str, list[set[str]]] = {}
    other: Group | None = None


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    tags: frozenset[str] = frozenset()


class Pairs(BaseModel):
    pairs: set[tuple[str, frozenset[str]]]
    models: set[Frozen] = set()


class Tags(RootModel[set[str]]):
    pass


class Alias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)

    tags: set[str] = Field(alias="the_tags")


class Custom(BaseModel):
    """Has serializers: a sorting one, an unsorted one, another form, and a computed set."""

    ordered: set[int]
    listed: set[str]
    joined: Annotated[set[str], PlainSerializer(lambda tags: ",".join(sorted(tags)))]

    @field_serializer("ordered")
    def _sorted(self, tags: set[int]) -> list[int]:
        return sorted(tags, reverse=True)

    @field_serializer("listed")
    def _listed(self, tags: set[str]) -> list[str]:
        return list(tags)

    @computed_field
    def upper(self) -> set[str]:
        return {tag.upper() for tag in self.listed}


class Configured(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", ser_json_timedelta="float", extra="allow")

    raw: bytes
    wait: dt.timedelta


class Raw(BaseModel):
    data: bytes
    any: Any = None
    names: set[str] = set()


class Dumped:
    """Not of Pydantic, and with `model_dump`."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"mode": mode}


WORDS = ["to", "ada", "zoë", "b", "a", "a b", "10", "9", "Z", "é", "\U0001f600", ""]
NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)
LONDON = zoneinfo.ZoneInfo("Europe/London")

NAMED: dict[str, Any] = {
    "null": None,
    "true": True,
    "integer": 7,
    "large": 10**30,
    "negative": -(2**63),
    "float": 1.5,
    "whole float": 3.0,
    "minus zero": -0.0,
    "tiny": 5e-324,
    "huge": 1.7e308,
    "text": "text",
    "controls": '\x00\x1f"\\\u2028',
    "emoji": "\U0001f600",
    "list": [1, [2, []], {}],
    "members": {"b": 1, "a": {"d": 2, "c": None}, "": 3},
    "order of keys": {"\U0001f600": 1, "\ufb33": 2},
    "tuple": (1, ("2", 3.5)),
    "str subclass": Name("ada"),
    "str enum": Class.ECONOMY,
    "StrEnum": Seat.WINDOW,
    "IntEnum": Step.ONE,
    "named tuple": Place(12, "2026-11-28"),
    "dataclass": Stop(None, "ada"),
    "dataclasses": {"trip": Trip([Stop(None, ())], {}, 1)},
    "model": Mail(to=["ada"], day=dt.date(2026, 11, 28)),
    "whole model": Mail(
        to=["ada", "zoë"],
        day=dt.date(1, 2, 3),
        sent=NOON,
        wait=dt.timedelta(days=-1, microseconds=5),
        at=Place(1, dt.date(2026, 1, 2)),
        by_day={10: "b", 9: "a"},
        path=pathlib.PurePosixPath("/a"),
    ),
    "zones in a model": [
        Mail(to=[], day=NOON.date(), sent=sent)
        for sent in (
            NOON.replace(tzinfo=None),
            NOON.replace(microsecond=500000),
            NOON.astimezone(dt.timezone(dt.timedelta(hours=-5, minutes=-30))),
            dt.datetime(2026, 6, 28, 12, tzinfo=LONDON),
            dt.datetime(2026, 12, 28, 12, tzinfo=LONDON),
        )
    ],
    "models": [{"mails": (Mail(to=[], day=NOON.date()),)}],
    "configured model": Configured(raw=b"\xff", wait=dt.timedelta(1), more=[1]),
    "a set of one in a model": Group(to={"ada"}, deep={"a": [{"b"}]}),
    "alias": Alias(the_tags={"a"}),
    "root model": Tags({"a"}),
    "empty sets in a model": Group(to=set(), any=[frozenset()]),
    "dumped": Dumped(),
    "two sets that sort": Custom(ordered={9, 10, 2, 1}, listed={"a"}, joined={"b", "a"}),
    "ordered dict": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("aab"),
    "nan in an Any": Group(to=set(), any=math.nan),
    # These had no fingerprint, or another fingerprint in each process.
    "datetime": NOON,
    "datetime of a zone": NOON.astimezone(LONDON),
    "naive datetime": NOON.replace(tzinfo=None, microsecond=5),
    "date": dt.date(2026, 11, 28),
    "time": dt.time(12, 30, tzinfo=dt.UTC),
    "timedelta": dt.timedelta(days=400, hours=3, microseconds=100),
    "negative timedelta": dt.timedelta(seconds=-90.5),
    "Decimal": decimal.Decimal("1.10"),
    "UUID": uuid.UUID(int=5),
    "Enum": Color.RED,
    "int enum": Level.HIGH,
    "float enum": Rate.HALF,
    "enum of a tuple": Shape.BOX,
    "bytes": b"text",
    "bytes that are no text": [b"\xff\x00", bytearray(b"\xff")],
    "path": pathlib.PurePosixPath("/tmp/a"),
    "int subclass": Count(5),
    "float subclass": Ratio(0.5),
    "numpy": [numpy.int64(3), numpy.float32(0.5), numpy.float64(1.5), numpy.bool_(True), numpy.str_("a")],
    "int keys": {10: "a", 9: "b", True: "c", None: "d", 1.5: "e"},
    "other keys": {NOON: 1, Color.RED: 2, uuid.UUID(int=5): 3, Level.LOW: 4},
    "set": set(WORDS),
    "set of ints": {10, 9, 8, 1},
    "mixed set": {1, "1", None, (2, "b"), 1.5, NOON, Color.RED},
    "frozenset": frozenset([frozenset("abc"), frozenset("de"), frozenset()]),
    "dataclass with a set": Stop(NOON, frozenset("abc")),
    "trip": Trip([Stop(NOON, frozenset("ab"))], {7: Place(1, NOON.date())}, decimal.Decimal("2")),
    "set in a model": Group(
        to=set(WORDS),
        more=frozenset("xyz"),
        any={"a": {"q", "r", "s"}},
        deep={"a": [set("abc"), set("de")]},
        other=Group(to=set("uvw")),
    ),
    "sets in sets in a model": Pairs(
        pairs={("a", frozenset("xyz")), ("a", frozenset("uvw")), ("b", frozenset())},
        models={Frozen(name="m", tags=frozenset("rst")), Frozen(name="n")},
    ),
    "alias of a set": Alias(the_tags=set(WORDS)),
    "root model of a set": Tags(set(WORDS)),
    "set of models": {Frozen(name=name) for name in WORDS},
    "serializers": Custom(ordered={9, 10, 2, 1}, listed=set(WORDS), joined=set(WORDS)),
    "raw bytes in a model": Raw(data=b"\xff", any=[b"\xfe"], names=set("abc")),
    "dataclass in a model": Raw(data=b"", any=Stop(NOON, frozenset("abc"))),
}


# Nestings

Make = Callable[[random.Random], Any]
"""Makes a value of a type."""


LEAVES: list[tuple[Any, Make]] = [
    (str, lambda rng: rng.choice(WORDS)),
    (int, lambda rng: rng.choice([0, 7, 10, 9, -1, 2**53 + 1, 10**30])),
    (float, lambda rng: rng.choice([0.5, 1e30, -2.25, 5e-324])),
    (bool, lambda rng: rng.random() < 0.5),
    (
        dt.datetime,
        lambda rng: rng.choice([NOON, NOON.replace(microsecond=50), NOON.astimezone(LONDON).replace(month=6)]),
    ),
    (dt.date, lambda rng: dt.date(rng.randint(1, 9999), 1, rng.randint(1, 31))),
    (dt.time, lambda rng: dt.time(rng.randint(0, 23), 30, 0, rng.choice([0, 5]))),
    (dt.timedelta, lambda rng: dt.timedelta(rng.randint(-1000, 1000), rng.randint(0, 86399), rng.choice([0, 100]))),
    (decimal.Decimal, lambda rng: decimal.Decimal(rng.choice(["1.10", "-0.5", "1E+5", "7"]))),
    (uuid.UUID, lambda rng: uuid.UUID(int=rng.getrandbits(128))),
    (bytes, lambda rng: rng.choice([b"text", b"", b"\xff\x00", b"\x00"])),
    (pathlib.PurePosixPath, lambda rng: pathlib.PurePosixPath(rng.choice(["/a", "b/c"]))),
    (Color, lambda rng: rng.choice(list(Color))),
    (Level, lambda rng: rng.choice(list(Level))),
    (Class, lambda rng: Class.ECONOMY),
    (Rate, lambda rng: Rate.HALF),
]
OUTSIDE_OF_MODELS: list[tuple[Any, Make]] = [
    (Count, lambda rng: Count(rng.randint(0, 9))),
    (numpy.int64, lambda rng: numpy.int64(rng.randint(0, 9))),
    (numpy.float64, lambda rng: numpy.float64(0.25)),
]


def nested(rng: random.Random, depth: int, *, hashable: bool = False, in_model: bool = False) -> tuple[Any, Make]:
    """A type that a function may name, and what makes values of it. A set has elements that can be hashed."""
    if depth == 0:
        return rng.choice(LEAVES if in_model else LEAVES + OUTSIDE_OF_MODELS)
    shape = rng.choice(
        ["frozenset", "tuple", "named", "dataclass", "model", "option"]
        + ["set", "list", "map", "ints"] * (not hashable)
    )
    within, name = in_model or shape == "model", f"Of{rng.getrandbits(32)}"
    hint, make = nested(rng, depth - 1, hashable=hashable or shape in ("set", "frozenset"), in_model=within)

    def some(rng: random.Random) -> list[Any]:
        return [make(rng) for _ in range(rng.randint(0, 4))]

    match shape:
        case "frozenset":
            return frozenset[hint], lambda rng: frozenset(some(rng))
        case "set":
            return set[hint], lambda rng: set(some(rng))
        case "list":
            return list[hint], some
        case "map":
            return dict[str, hint], lambda rng: dict(zip(WORDS, some(rng), strict=False))
        case "ints":
            return dict[int, hint], lambda rng: dict(zip((10, 9, -1, 0), some(rng), strict=False))
        case "tuple":
            return tuple[hint, int], lambda rng: (make(rng), 1)
        case "option":
            return hint | None, lambda rng: make(rng) if rng.random() < 0.7 else None
        case "named":
            kind: Any = NamedTuple(name, [("part", hint)])
        case "dataclass":
            kind = dataclasses.make_dataclass(name, [("part", hint)], frozen=True)
        case _:
            kind = create_model(name, __config__=ConfigDict(frozen=True), part=(hint, ...))
    return kind, lambda rng: kind(part=make(rng))


def nestings(count: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Types, and a value of each."""
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        hint, make = nested(rng, rng.randint(0, 4))
        yield hint, make(rng)
