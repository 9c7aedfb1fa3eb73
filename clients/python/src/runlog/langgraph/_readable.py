"""Values of LangGraph's format as JSON that people can read in the journal, and back, byte for byte.

    null, booleans, numbers, texts, arrays        the same
    a map with text keys                          an object
    a value of a named type                       {"$type": "langchain_core.messages.human:HumanMessage", "value": …, "form": 5, …}
    bytes                                         {"$bytes": base64}
    NaN and the infinities                        {"$float": "nan"}
    a map with other keys, or with keys that begin with "$"   {"$map": [[key, value], …]}

Only data is converted here: `StrictSerializer` decides about types, and calls them, as for its own encoding. A value that would not
come back byte for byte stays msgpack in base64.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, cast

import msgspec
from langgraph.checkpoint.serde import jsonplus as codes

from .._json import Json, encode
from ..errors import Invalid

_LEAVES = frozenset((str, int, float, bool, type(None)))
READABLE = "value"
"""The format of such a value, beside LangGraph's. LangGraph's `json` is another one, which can call functions."""
DEPTH_MAX = 64
"""Depth of a readable value. A server refuses JSON of more than 128 levels."""


def readable(data: bytes) -> Json | None:
    """The JSON of an encoded value; `None` if it has none."""
    try:
        found = _to_json(msgspec.msgpack.decode(data, ext_hook=_Extension), 0)
        return found if encoded(json.loads(encode(found))) == data else None
    except (Invalid, ValueError, TypeError, RecursionError, OverflowError, msgspec.MsgspecError):
        return None


def encoded(value: Any) -> bytes:
    """The encoded value of JSON from the journal. Raises `Invalid` for JSON that is of no value."""
    try:
        return msgspec.msgpack.encode(_from_json(value, 0))
    except (
        AttributeError,
        LookupError,
        ValueError,
        TypeError,
        RecursionError,
        OverflowError,
        msgspec.MsgspecError,
    ) as error:
        raise Invalid(f"its JSON is not of a stored value: {type(error).__name__}: {error}") from error


class _Extension:
    """A value of msgpack's extension types."""

    def __init__(self, code: int, data: memoryview) -> None:
        self.code, self.data = code, bytes(data)


def _to_json(value: Any, depth: int) -> Json:
    if depth > DEPTH_MAX:
        raise Invalid("it is too deep")
    match value:
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case list():
            return [_to_json(each, depth + 1) for each in cast("list[Any]", value)]
        case dict():
            members = cast("dict[Any, Any]", value)
            if all(type(name) is str and not name.startswith("$") for name in members):
                return {name: _to_json(each, depth + 1) for name, each in members.items()}
            return {"$map": [[_to_json(name, depth + 2), _to_json(each, depth + 2)] for name, each in members.items()]}
        case bytes():
            return {"$bytes": base64.b64encode(value).decode()}
        case _Extension():
            return _of_type(value, depth)
        case _:
            return value


def _of_type(found: _Extension, depth: int) -> Json:
    if not codes.EXT_CONSTRUCTOR_SINGLE_ARG <= found.code <= codes.EXT_PYDANTIC_V2:
        raise Invalid("it is no value of a named type")
    module, name, content, *method = msgspec.msgpack.decode(found.data, ext_hook=_Extension)
    more: dict[str, Json] = {"method": _text(method[0])} if method else {}
    value = _to_json(content, depth + 1)
    return {"$type": f"{_text(module)}:{_text(name)}", "value": value, "form": found.code, **more}


def _text(value: object) -> str:
    if type(value) is not str:
        raise Invalid("its type has no name")
    return value


def _from_json(value: Any, depth: int) -> Any:
    # A long thread has thousands of values, so this has short ways for most of them.
    if type(value) in _LEAVES:
        return value
    if depth > DEPTH_MAX:
        raise ValueError(f"it has more than {DEPTH_MAX} levels")
    if type(value) is list:
        return [_from_json(each, depth + 1) for each in cast("list[Any]", value)]
    members = cast("dict[str, Any]", value)
    if next(iter(members), "").startswith("$"):
        return _of_mark(members, depth)
    return {name: each if type(each) in _LEAVES else _from_json(each, depth + 1) for name, each in members.items()}


def _of_mark(members: dict[str, Any], depth: int) -> Any:
    """A value of another form than JSON's, by its first member."""
    mark, content = next(iter(members.items()))
    if mark == "$type":
        module, _, name = content.partition(":")
        parts = [module, name, _from_json(members["value"], depth + 1)]
        if "method" in members:
            parts.append(members["method"])
        return msgspec.msgpack.Ext(members["form"], msgspec.msgpack.encode(parts))
    if mark == "$bytes":
        return base64.b64decode(content, validate=True)
    if mark == "$float":
        return float(content)
    if mark == "$map":
        return {_from_json(name, depth + 2): _from_json(each, depth + 2) for name, each in content}
    raise ValueError(f"the member {mark[:80]!r} is not of this version")
