"""Converts recorded JSON to the type that a function names: the inverse of `_values`."""

from __future__ import annotations

import base64
import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import re
import types
import typing
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePath
from typing import Any, cast

from ._hints import hints_of
from ._json import Json
from ._texts import key_text
from ._values import to_json
from .errors import Invalid

_DURATION = re.compile(
    r"(?P<sign>-?)P(?:(?P<years>\d+)Y)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<micros>\d{1,6}))?S)?)?"
)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_COLLECTIONS: dict[Any, Callable[[Iterable[Any]], Any]] = {
    list: list, tuple: tuple, set: set, frozenset: frozenset, deque: deque,
    collections.abc.Sequence: list, collections.abc.MutableSequence: list, collections.abc.Iterable: list,
    collections.abc.Collection: list, collections.abc.Set: frozenset, collections.abc.MutableSet: set,
}  # fmt: skip
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_NATIVE = (str, bool, int, float, list, dict)


def decode(hint: Any, value: Any) -> Any:
    """Converts JSON to a value of a type. A part that does not fit the type, such as redacted content, stays unchanged.

    In a union a type that JSON has comes first: `str | UUID` gives text. A model is what its `model_validate` returns or raises,
    and a dataclass what its constructor does. A class may name types that do not exist now: those members stay JSON."""
    while (hidden := getattr(hint, "__supertype__", None) or getattr(hint, "__value__", None)) is not None:
        hint = hidden  # a NewType, or an alias of `type`
    if value is None or hint is None or hint is Any:
        return value
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        return _one_of([part for part in parts if part is not type(None)], value)
    if origin is typing.Literal:
        return next((part for part in parts if _same(part, value)), value)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.ClassVar, typing.Final):
        return decode(parts[0], value)
    kind: Any = origin or hint
    if isinstance(value, list):
        return _collection(kind, parts, cast("list[Any]", value))
    if isinstance(value, Mapping) and kind in _MAPPINGS:
        keys, members = parts or (Any, Any)
        named = cast("Mapping[str, Any]", value)
        return {_key(keys, name): decode(members, member) for name, member in named.items()}
    return _of_class(kind, parts, cast("Any", value)) if isinstance(kind, type) else cast("Any", value)


def _one_of(options: list[Any], value: Any) -> Any:
    if len(options) == 1:
        return decode(options[0], value)
    if any(option is type(value) for option in options if option in _NATIVE):
        return value
    for option in options:
        try:
            decoded = decode(option, value)
        except (TypeError, ValueError):
            continue
        if decoded is not value:
            return decoded
    return value


def _collection(kind: Any, parts: tuple[Any, ...], value: list[Any]) -> Any:
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    if names is not None:
        hints = hints_of(kind, parts)
        if len(names) != len(value):
            return value
        return kind(*(decode(hints.get(name), element) for name, element in zip(names, value, strict=True)))
    make = _COLLECTIONS.get(kind)
    if make is None:
        return _of_class(kind, parts, value) if isinstance(kind, type) else value
    if kind is tuple and parts and parts[-1] is not Ellipsis:
        return tuple(decode(part, element) for part, element in zip(parts, value, strict=False))
    elements = [decode(parts[0] if parts else Any, element) for element in value]
    try:
        return make(elements)
    except TypeError:
        return value  # elements of a set that cannot be hashed


def _of_class(kind: Any, parts: tuple[Any, ...], value: Any) -> Any:
    if callable(getattr(kind, "model_validate", None)):
        return _model(kind, value)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, parts, cast("Mapping[str, Any]", value)) if isinstance(value, Mapping) else value
    if typing.is_typeddict(kind):
        hints = hints_of(kind, parts)
        if not isinstance(value, Mapping):
            return value
        return {name: decode(hints.get(name), v) for name, v in cast("Mapping[str, Any]", value).items()}
    if issubclass(kind, enum.Enum):
        return _member(kind, value)
    try:
        return _text(kind, value)
    except (ValueError, ArithmeticError):
        return value


def _text(kind: Any, value: Any) -> Any:
    """A value of a type whose JSON is a text or a number. Raises `ValueError` or `ArithmeticError` for another text."""
    if issubclass(kind, bytes | bytearray):
        encoded = cast("Mapping[str, Any]", value).get("base64") if isinstance(value, Mapping) else None
        if isinstance(encoded, str):
            return kind(base64.b64decode(encoded, validate=True))
        return kind(value.encode()) if isinstance(value, str) else cast("Any", value)
    if isinstance(value, str):
        if issubclass(kind, dt.date | dt.time):
            return kind.fromisoformat(value)
        if issubclass(kind, dt.timedelta):
            return _duration(value)
        if issubclass(kind, decimal.Decimal | uuid.UUID | PurePath):
            return kind(value)
        if issubclass(kind, float) and value in _NOT_FINITE:
            return kind(value)
    of_numpy = getattr(kind, "__module__", "") == "numpy"
    if isinstance(value, str | int | float) and (of_numpy or _is_subclass_of_native(kind, type(value))):
        return kind(value)
    return value


def _is_subclass_of_native(kind: Any, native: type) -> bool:
    return kind is not native and kind is not bool and issubclass(kind, native)


def _duration(text: str) -> dt.timedelta:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(text)
    parts = {name: int(part or 0) for name, part in found.groupdict().items() if name not in ("sign", "micros")}
    micros = int((found["micros"] or "").ljust(6, "0"))
    days = 365 * parts["years"] + parts["days"]
    seconds = 3600 * parts["hours"] + 60 * parts["minutes"] + parts["seconds"]
    if found["sign"]:
        days, seconds, micros = -days, -seconds, -micros
    return dt.timedelta(days, seconds, micros)


def _member(kind: Any, value: Any) -> Any:
    for member in kind:
        if _same(member, value):
            return member
    if issubclass(kind, enum.Flag) and isinstance(value, int):
        return kind(value)
    return value


def _same(one: Any, value: Json) -> bool:
    try:
        recorded = to_json(one, mark_nan=True)
    except Invalid:
        return False
    return recorded == value and isinstance(recorded, bool) is isinstance(value, bool)


def _key(kind: Any, name: str) -> Any:
    """A key of a mapping from its text."""
    while typing.get_origin(kind) is typing.Annotated:
        kind = typing.get_args(kind)[0]
    if kind is bool:
        return {"true": True, "false": False}.get(name, name)
    if not isinstance(kind, type):
        return decode(kind, name)
    try:
        if issubclass(kind, enum.Enum):
            return next((member for member in kind if key_text(member) == name), name)
        if issubclass(kind, int | float) or kind.__module__ == "numpy":
            return kind(name)
    except ValueError:
        return name
    return decode(kind, name)


def _dataclass(kind: Any, parts: tuple[Any, ...], value: Mapping[str, Any]) -> Any:
    hints = hints_of(kind, parts)
    members = {name: decode(hints.get(name), member) for name, member in value.items()}
    later = {field.name for field in dataclasses.fields(kind) if not field.init} & members.keys()
    made = kind(**{name: member for name, member in members.items() if name not in later})
    for name in later:
        object.__setattr__(made, name, members[name])
    return made


def _model(kind: Any, value: Any) -> Any:
    try:
        return kind.model_validate(value)
    except ValueError:
        fields: Any = getattr(kind, "model_fields", None)
        if fields is None or not isinstance(value, Mapping):
            raise
        # Reads the dumped form: by name, with computed fields, and with bytes that are not UTF-8.
        hints = hints_of(kind)
        computed: Any = kind.model_computed_fields
        named = cast("Mapping[str, Any]", value).items()
        members = {name: decode(hints.get(name), member) for name, member in named if name not in computed}
        try:
            return kind.model_validate(members, by_alias=True, by_name=True)
        except (TypeError, ValueError):
            pass
        raise
