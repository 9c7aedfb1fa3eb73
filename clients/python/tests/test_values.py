"""Arguments and results of tools: each value has one text, in every process and every version."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
import os
import random
import subprocess
import sys
import types
import uuid
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, NewType, TypedDict, TypeVar

import numpy
import pytest
from pydantic import BaseModel, TypeAdapter

import runlog
import values
from runlog import Invalid
from runlog._decode import decode
from runlog._json import args_sha256, encode, fingerprint
from runlog._values import arguments_json, to_json
from values import NAMED, NOON, WORDS, Color, Group, Level, Mail, Place, Raw, Stop, Trip

FINGERPRINTS = json.loads((Path(__file__).parent / "fingerprints.json").read_text(encoding="utf-8"))
"""Fingerprints of named values as arguments of a tool `tool`. The values of `first` had them before dates and sets had a text."""
SEED = random.randrange(1 << 32)
"""The seed of the nestings: they differ from run to run. A failure names it."""

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


def found_by(value: object) -> str:
    return fingerprint("tool", args_sha256(arguments_json(value)))


@pytest.mark.parametrize("name", FINGERPRINTS["first"])
def test_a_value_keeps_the_fingerprint_that_it_had(name):
    assert found_by(NAMED[name]) == FINGERPRINTS["first"][name]


def in_process(python: str, seed: str, url: str, run_id: str) -> Any:
    """Makes a call with each value, in a process with another hash seed. Returns the versions, the fingerprints and the effects."""
    # Packages of this version's environment do not work in another version.
    path = os.pathsep.join(str(Path(of).resolve().parent) for of in (Path(runlog.__file__).parent, __file__))
    ran = subprocess.run(
        [python, "-W", "ignore", "-m", "value_process", url, run_id, str(SEED)],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize("versions", ["one version", "two versions"])
def test_a_value_has_one_fingerprint_and_one_effect_whatever_the_process(url, run_id, versions):
    second = sys.executable if versions == "one version" else os.environ.get("RUNLOG_SECOND_PYTHON")
    if not second:
        pytest.skip(
            f"no second version of Python: only {sys.version.split()[0]} was tried; RUNLOG_SECOND_PYTHON names an interpreter"
        )
    pythons = (sys.executable, second, sys.executable)
    ran = [in_process(python, str(seed), url, run_id) for seed, python in enumerate(pythons, 1)]
    assert (len({process["version"] for process in ran}) == 2) is (versions == "two versions")
    named, nested = ran[0]["named"], ran[0]["nested"]
    assert named == {**FINGERPRINTS["first"], **FINGERPRINTS["since"]} and len(set(nested)) > 120
    assert all((process["named"], process["nested"]) == (named, nested) for process in ran), SEED
    # The first process ran each effect, and the journal answered the others.
    assert [process["effects"] for process in ran] == [ran[0]["calls"], 0, 0] and ran[0]["calls"] > 250, SEED


def test_a_value_comes_back_as_the_type_that_was_named():
    for hint, value in values.nestings(200, SEED):
        back = decode(hint, json.loads(encode(arguments_json(value))))
        assert back == value and type(back) is type(value), (SEED, hint)


UserId = NewType("UserId", uuid.UUID)


T = TypeVar("T")


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    next: T | None = None


class Pair(NamedTuple, Generic[T]):
    one: T
    other: T


class Named(TypedDict, Generic[T]):
    of: dict[str, T]


class Basket(TypedDict):
    by: UserId
    when: dict[dt.date, Color]


NAMED_TYPES: list[tuple[Any, Any]] = [
    (Trip, NAMED["trip"]),
    (Stop, NAMED["dataclass with a set"]),
    (Mail, NAMED["whole model"]),
    (values.Pairs, NAMED["sets in sets in a model"]),
    (Raw, Raw(data=b"\xff", names=set("abc"))),
    (UserId, uuid.UUID(int=5)),
    (Basket, {"by": uuid.UUID(int=5), "when": {NOON.date(): Color.RED}}),
    (dt.datetime | None, NOON),
    (Color | dt.datetime | int, NOON),
    (str | dt.datetime, "2026-11-28T12:00:00Z"),
    (Literal[Color.RED], Color.RED),
    (set, {1, 2}),
    (tuple, (1, 2)),
    (tuple[dt.date, ...], (NOON.date(),)),
    (dict[bool, int], {True: 1}),
    (dict[Level, int], {Level.LOW: 1}),
    (bytearray, bytearray(b"\xff")),
    (list[Trip | Stop], [NAMED["trip"], Stop(None)]),
    (numpy.float32, numpy.float32(0.5)),
    (Any, [1]),
    (Page[Stop], Page([Stop(None)], Stop(None))),
    (Page[Page[dt.date]], Page([Page([NOON.date()])])),
    (Pair[dt.date], Pair(NOON.date(), NOON.date())),
    (Named[uuid.UUID], {"of": {"a": uuid.UUID(int=5)}}),
]


def test_a_value_of_a_named_type_comes_back():
    for hint, value in NAMED_TYPES:
        back = decode(hint, json.loads(encode(arguments_json(value))))
        assert back == value and type(back) is type(value), hint


def test_a_member_whose_type_does_not_exist_at_runtime_stays_json():
    program = """
from __future__ import annotations
import dataclasses, datetime, typing
if typing.TYPE_CHECKING:
    from shop import Cart
@dataclasses.dataclass
class Order:
    when: datetime.date
    cart: Cart
class Row(typing.NamedTuple):
    when: datetime.date
    cart: Cart
class Members(typing.TypedDict):
    when: datetime.date
    cart: Cart
from datetime import date
@dataclasses.dataclass
class Hiding:
    cart: Cart
    date: date | None = None
"""
    module = types.ModuleType("a_module_of_a_test")
    sys.modules[module.__name__] = module
    try:
        exec(program, vars(module))
        members = {"when": "2026-11-28", "cart": {"id": 1}}
        when, cart = dt.date(2026, 11, 28), {"id": 1}
        assert decode(module.Order, members) == module.Order(when, cart)
        assert decode(module.Row, list(members.values())) == (when, cart)
        assert decode(module.Members, members) == {"when": when, "cart": cart}
        assert decode(module.Hiding, {"cart": cart, "date": "2026-11-28"}) == module.Hiding(cart, when)
    finally:
        del sys.modules[module.__name__]


def test_content_that_does_not_fit_its_type_stays_as_it_is():
    assert decode(dt.datetime, "[redacted]") == "[redacted]" and decode(dt.datetime | int, "no") == "no"
    assert decode(list[uuid.UUID], [5, "x"]) == [5, "x"] and decode(dict[int, Color], {"a": "b"}) == {"a": "b"}
    assert (
        decode(set[str], [["a"]]) == [["a"]]
        and decode(Place, [1]) == [1]
        and decode(bytes, {"base64": "?"}) == {"base64": "?"}
    )


def test_the_texts_equal_pydantics_texts():
    class Any_(BaseModel):
        any: Any

    for value in (value for _, value in values.nestings(400, SEED)):
        if isinstance(value, dt.date | dt.time | dt.timedelta | uuid.UUID | Color):
            text = to_json(value)
            pydantics = TypeAdapter(type(value)).dump_python(value, mode="json")
            assert text == pydantics == to_json(Any_(any=value))["any"], (SEED, value)


class Thing:
    pass


class Broken(BaseModel):
    when: Any = Thing()
    ok: int = 1


class Raises:
    def model_dump(self, mode: str) -> dict[str, str]:
        raise RuntimeError("out of order")


DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]
LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP

REFUSED: dict[str, tuple[Any, str]] = {
    "a type": ({"to": [1, 2, {"when": Thing()}]}, r"type test_values\.Thing has no JSON.*, at \$\.to\[2\]\.when$"),
    "nan": ({"a b": [math.nan]}, r"^nan has no JSON, at \$\['a b'\]\[0\]$"),
    "infinity": (Stop(-math.inf), r"^-inf has no JSON, at \$\.at$"),
    "nan of a model": (Group(to=set(), other=Group.model_construct(to={math.nan})), r"nan has no JSON, at \$\.other\.to\[\*\]$"),
    "numpy": ([numpy.float32("nan")], r"nan has no JSON, at \$\[0\]$"),
    "a surrogate": ({"to": ["a", {"\ud83d": 1}]}, r"no canonical JSON: lone_surrogate, at \$\.to\[1\]$"),
    "a surrogate of a set": ({"a": {"\ud83d"}}, r"lone_surrogate, at \$\.a\[0\]$"),
    "keys": ({"a": {1: "a", "1": "b"}}, r"two keys are the same text '1', at \$\.a$"),
    "keys of a model": (Group(to=set(), any={1: "a", "1": "b"}), "two keys are the same text '1'"),
    "a key": ({(1, 2): 3}, "a key of type tuple has no text"),
    "a part of a model": ({"mail": Broken()}, r"type test_values\.Thing has no JSON.*, at \$\.mail\.when$"),
    "a serializer": ([Raises()], r"type test_values\.Raises has no JSON: RuntimeError: out of order, at \$\[0\]$"),
    "depth": (DEEP, r"deeper than 128 levels, at \$(\[0\]){128}$"),
    "a loop": (LOOP, r"deeper than 128 levels, at \$(\.self){128}$"),
    "digits": ([10**5000], r"beyond the range of a double .*, at \$\[0\]$"),
    "a large integer": ({"n": -(2**1024)}, r"beyond the range of a double .*, at \$\.n$"),
    "a type itself": ({"a": Mail}, r"type \S*ModelMetaclass has no JSON.*, at \$\.a$"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_arguments_that_cannot_be_recorded_are_refused_with_their_place(name):
    value, message = REFUSED[name]
    with pytest.raises(Invalid, match=message):
        arguments_json(value)


def test_numbers_that_are_not_finite_are_marked_in_results_and_come_back():
    found = [math.nan, math.inf, -math.inf, numpy.float64("nan")]
    assert to_json(found, mark_nan=True) == ["NaN", "Infinity", "-Infinity", "NaN"]
    assert str(decode(list[float], ["NaN", "Infinity", "-Infinity"])) == "[nan, inf, -inf]"


def test_a_set_is_sorted_by_the_canonical_text_of_its_elements():
    assert to_json({10, 9, 1}) == [1, 10, 9] and to_json({"b", 1, "\ud83d"}) == ["b", "\ud83d", 1]
    assert to_json(Group(to=set(WORDS)))["to"] == sorted(WORDS, key=lambda word: json.dumps(word, ensure_ascii=False))
