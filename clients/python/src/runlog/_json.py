"""JSON: canonical form and fingerprints of calls (docs/spec.md, "Tool calls"), and texts as they are sent."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from ._checks import check_text
from .errors import Invalid

Json: TypeAlias = "None | bool | int | float | str | Sequence[Json] | Mapping[str, Json]"

DEPTH_MAX = 128
_FLOAT = re.compile(r"(-?)([0-9.]+)(?:e([+-][0-9]+))?")
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SURROGATE = re.compile("[\ud800-\udfff]")


class Refused(ValueError):
    """A text or value without canonical form. The argument is the reason's code."""


class _Number(str):
    """A number as canonical JSON spells it."""

    __slots__ = ()


def canonical_text(text: str) -> str:
    """The canonical form of a JSON text: RFC 8785, but large integers keep their digits and duplicate keys are refused.

    Raises `Refused` with `syntax`, `duplicate_key`, `not_finite`, `lone_surrogate` or `too_deep`.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_members, parse_int=_integer, parse_float=_double, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError:
        raise Refused("syntax") from None
    except RecursionError:
        raise Refused("too_deep") from None
    return _checked(_write(value, 1))


def canonical(value: Json) -> str:
    """The canonical form of a value. Raises `Refused`."""
    return _checked(_write(value, 1))


def set_order(value: Json) -> str:
    """The sort key of an element of a set: its canonical form, here also with lone surrogates."""
    return _write(value, 1)


def args_sha256(arguments: Json) -> str:
    """The hexadecimal SHA-256 of the arguments' canonical form."""
    return hashlib.sha256(canonical(arguments).encode()).hexdigest()


def fingerprint(tool: str, args_hash: str) -> str:
    """The fingerprint of a call: its tool, and the hash of its arguments."""
    check_text("the name of a tool", tool)
    return "v1:" + hashlib.sha256(tool.encode() + b"\0" + args_hash.encode()).hexdigest()


def _integer(text: str) -> _Number:
    return _Number("0" if text == "-0" else text)


def _refuse_constant(_: str) -> NoReturn:
    raise Refused("syntax")  # Python's parser accepts NaN and the infinities.


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise Refused("duplicate_key")
    return unique


def _double(text: str) -> _Number:
    return _Number(_float(float(text)))


def _float(value: float) -> str:
    """ECMAScript's Number::toString. Python's repr has the same digits, laid out differently."""
    if math.isinf(value) or math.isnan(value):
        raise Refused("not_finite")
    if value == 0:
        return "0"
    found = _FLOAT.fullmatch(repr(value))
    if found is None:
        raise Refused("syntax")
    sign, digits, exponent = found.groups()
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)  # where the decimal point is, counted from the first digit
    digits = whole + fraction
    point -= len(digits) - len(digits.lstrip("0"))
    digits = digits.strip("0")
    count = len(digits)
    if count <= point <= 21:
        out = digits + "0" * (point - count)
    elif 0 < point <= 21:
        out = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        out = "0." + "0" * -point + digits
    else:
        out = f"{digits[0]}{'.' + digits[1:] if count > 1 else ''}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return sign + out


def _checked(text: str) -> str:
    if not text.isascii() and _SURROGATE.search(text):
        raise Refused("lone_surrogate")
    return text


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}", text) + '"'


def _write(value: Json, depth: int) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    if depth > DEPTH_MAX:
        raise Refused("too_deep")
    if isinstance(value, Mapping):
        # UTF-16 code units in big-endian bytes compare as the units do.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(_string(key) + ":" + _write(value[key], depth + 1) for key in keys) + "}"
    return "[" + ",".join(_write(element, depth + 1) for element in value) + "]"


def encode(value: Json) -> str:
    """The compact text that is sent, lone surrogates escaped. Raises `Invalid` for values that have no JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"a value does not serialise as JSON: {error}") from error
    return text if text.isascii() else _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(strict=False)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def member_text(text: str, name: str) -> str | None:
    """The unparsed text of a member of a JSON object. `None` if it is absent."""
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _DECODER.raw_decode(text, start)
        if key == name:
            return text[start:at]
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return None


def element_texts(text: str) -> list[str]:
    """The unparsed texts of the elements of a JSON array."""
    found: list[str] = []
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "]":
        _, end = _DECODER.raw_decode(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found
