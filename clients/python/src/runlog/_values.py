"""Values of Python as JSON: one text for each value, in every process, inside and outside of models.

    str, int, float, bool, None ─▶ themselves            Enum                     ─▶ its value
    datetime, date, time        ─▶ ISO 8601              dataclass, model         ─▶ object
    timedelta                   ─▶ ISO 8601 duration     mapping                  ─▶ object, keys as text
    Decimal, UUID, path         ─▶ text                  list, tuple, deque       ─▶ array
    bytes                       ─▶ text, or {"base64": …} if they are no UTF-8
    set, frozenset              ─▶ array, sorted by the canonical text of its elements

The texts are the same as Pydantic's. Pydantic itself dumps its models (`_models`).
"""

from __future__ import annotations

import dataclasses
import enum
import math
import re
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

from ._json import DEPTH_MAX, Json, Refused, canonical, set_order
from ._models import dumped, fields_of, is_pydantic
from ._texts import NoJson, key_text, text_of, type_name
from .errors import Error

DOUBLE_BITS = 1024
"""Integers with fewer bits are in the range of a double."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclasses.dataclass(frozen=True, slots=True)
class Unrecordable:
    """A result that an adapter could not convert to its recorded form, and why."""

    error: Exception


def to_json(value: object, *, mark_nan: bool = False) -> Json:
    """Converts a value to JSON. Raises `Invalid` with the path of a part without JSON. `mark_nan` makes NaN and the
    infinities text."""
    return _Conversion(mark_nan).convert(value, 1)


def arguments_json(value: object) -> Json:
    """Converts arguments to JSON with a canonical form. Raises `Invalid` with the path of a part without a canonical
    form."""
    converted = to_json(value)
    try:
        canonical(converted)
    except Refused as refused:
        raise _find_refused(converted, f"it has no canonical JSON: {refused}") from refused
    return converted


class _Conversion:
    def __init__(self, mark_nan: bool) -> None:
        self._mark_nan = mark_nan

    def convert(self, value: object, depth: int) -> Json:
        try:
            if (scalar := self._scalar(value)) is not _NONE_OF_THESE:
                return cast("Json", scalar)
            if depth > DEPTH_MAX:
                raise NoJson(f"it nests deeper than {DEPTH_MAX} levels")
            return self._container(value, depth)
        except Error:
            raise
        except Exception as error:
            # A property or a serializer of the value's type raised it.
            raise NoJson(f"a value of type {type_name(value)} has no JSON: {_first_line(error)}") from error

    def _scalar(self, value: object) -> object:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return value if type(value) is str else str.__str__(value)
        if isinstance(value, int):
            if value.bit_length() >= DOUBLE_BITS and not _is_double(value):
                raise NoJson("an integer beyond the range of a double has no JSON that every reader understands")
            return value if type(value) is int else int.__index__(value)
        if isinstance(value, float):
            return self._float(value if type(value) is float else float.__float__(value))
        return _NONE_OF_THESE

    def _float(self, value: float) -> Json:
        if math.isfinite(value):
            return value
        if not self._mark_nan:
            raise NoJson(f"{value} has no JSON")
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    def _container(self, value: Any, depth: int) -> Json:
        if isinstance(value, Unrecordable):
            raise value.error if isinstance(value.error, Error) else NoJson(_first_line(value.error)) from value.error
        dump = getattr(value, "model_dump", None)
        if callable(dump) and not isinstance(value, type):
            return self._model(value, dump, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._members(
                ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value)), depth
            )
        if isinstance(value, Mapping):
            return self._members(cast("Mapping[object, object]", value).items(), depth)
        if isinstance(value, list | tuple | deque):
            return self._elements(cast("Iterable[object]", value), depth)
        if isinstance(value, set | frozenset):
            return self._sorted(cast("AbstractSet[object]", value), depth)
        return self._other(value, depth)

    def _other(self, value: Any, depth: int) -> Json:
        if isinstance(value, enum.Enum):
            return self.convert(value.value, depth)
        if (text := text_of(value)) is not None:
            return text
        numpy: Any = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.bool_ | numpy.integer | numpy.floating):
            number: Any = value.item()
            if isinstance(number, bool | int | float):
                return self.convert(number, depth)
        raise NoJson(f"a value of type {type_name(value)} has no JSON; pass a dataclass, a model or JSON")

    def _model(self, value: Any, dump: Any, depth: int) -> Json:
        if not is_pydantic(value):
            return self.convert(dump(mode="json"), depth)
        try:
            return self.convert(dumped(value, to_json), depth)
        except Exception as error:
            # Pydantic does not report the place. It is a part that has no JSON by itself.
            self._members(fields_of(value), depth)
            raise error

    def _members(self, members: Iterable[tuple[object, object]], depth: int) -> Json:
        named: dict[str, Json] = {}
        for key, member in members:
            name = key if type(key) is str else key_text(key)
            if name in named:
                raise NoJson(f"two keys are the same text {name!r}")
            try:
                named[name] = self.convert(member, depth + 1)
            except NoJson as error:
                raise error.inside(_step(name)) from error.__cause__
        return named

    def _elements(self, elements: Iterable[object], depth: int) -> list[Json]:
        converted: list[Json] = []
        for element in elements:
            try:
                converted.append(self.convert(element, depth + 1))
            except NoJson as error:
                raise error.inside(f"[{len(converted)}]") from error.__cause__
        return converted

    def _sorted(self, elements: AbstractSet[object], depth: int) -> list[Json]:
        converted: list[Json] = []
        for element in elements:
            try:
                converted.append(self.convert(element, depth + 1))
            except NoJson as error:
                raise error.inside("[*]") from error.__cause__
        return sorted(converted, key=set_order)


_NONE_OF_THESE: Any = object()


def _step(name: str) -> str:
    return f".{name}" if _NAME.fullmatch(name) else f"[{name!r}]"


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _find_refused(value: Json, why: str) -> NoJson:
    """Makes the error for the deepest part of a value without canonical form."""
    parts: Iterable[tuple[str, Json]] = ()
    if isinstance(value, Mapping):
        parts = ((_step(name), member) for name, member in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        parts = ((f"[{at}]", element) for at, element in enumerate(value))
    for step, part in parts:
        try:
            canonical(part)
        except Refused:
            return _find_refused(part, why).inside(step)
    return NoJson(why)


def _is_double(value: int) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False
