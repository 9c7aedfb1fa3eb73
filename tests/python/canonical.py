#!/usr/bin/env python3
"""Checks schemas/vectors/canonical.json against the rules of canonical JSON and of fingerprints, written down a second
time here with nothing but the standard library.

    tests/python/canonical.py [VECTORS]

Prints one line and exits 0, or prints each vector that differs and exits 1.
"""

import hashlib
import json
import math
import pathlib
import re
import sys

DEPTH_MAX = 128
VECTORS = pathlib.Path(__file__).parents[2] / "schemas" / "vectors" / "canonical.json"


class Refused(Exception):
    """The text has no canonical form. The argument is the reason, as the vectors name it."""


class Literal(str):
    """A number, as it is spelled in canonical form."""


def integer(text):
    return Literal("0" if text == "-0" else text)


def double(text):
    """ECMAScript's Number::toString: Python's repr has the same digits (the shortest that read back), laid out
    differently."""
    value = float(text)
    if math.isinf(value):
        raise Refused("not_finite")
    if value == 0:
        return Literal("0")
    sign, digits, exponent = re.fullmatch(r"(-?)([0-9.]+)(?:e([+-][0-9]+))?", repr(value)).groups()
    whole, _, fraction = digits.partition(".")
    point = len(whole) + int(exponent or 0)  # position of the decimal point, from the first digit
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
        out = digits[0] + ("." + digits[1:] if count > 1 else "") + "e" + ("+" if point > 0 else "-") + str(abs(point - 1))
    return Literal(sign + out)


def members(pairs):
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise Refused("duplicate_key")
    return unique


def refuse_constant(text):
    raise Refused("syntax")  # Python's parser accepts NaN and the infinities.


def parse(text):
    try:
        return json.loads(text, object_pairs_hook=members, parse_int=integer, parse_float=double, parse_constant=refuse_constant)
    except json.JSONDecodeError:
        raise Refused("syntax") from None


def string(text):
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise Refused("lone_surrogate")
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    return '"' + "".join(short.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def write(value, depth=1):
    if isinstance(value, Literal):
        return str(value)
    if isinstance(value, str):
        return string(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if depth > DEPTH_MAX:
        raise Refused("too_deep")
    if isinstance(value, list):
        return "[" + ",".join(write(element, depth + 1) for element in value) + "]"
    # UTF-16 code units in big-endian bytes compare as the units do.
    keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    return "{" + ",".join(string(key) + ":" + write(value[key], depth + 1) for key in keys) + "}"


def answer(vector):
    """Applies the rules to the vector's input. Returns the vector's fields without the place of a refusal, which the Rust
    test checks."""
    try:
        canonical = write(parse(vector["input"]))
    except Refused as refused:
        return {"refused": refused.args[0]}
    args_sha256 = hashlib.sha256(canonical.encode()).hexdigest()
    fingerprint = hashlib.sha256(vector.get("tool_name", "").encode() + b"\0" + args_sha256.encode()).hexdigest()
    return {"canonical": canonical, "args_sha256": args_sha256, "fingerprint": "v1:" + fingerprint}


def main():
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else VECTORS
    vectors = json.loads(path.read_text(encoding="utf-8"))
    differing = 0
    for vector in vectors:
        got = answer(vector)
        expected = {key: vector[key] for key in vector if key not in ("name", "input", "tool_name", "pointer")}
        if got != expected:
            differing += 1
            print(f"{vector['name']}: expected {expected}, got {got}")
    print(f"{len(vectors)} vectors, {differing} differ")
    return 1 if differing or not vectors else 0


if __name__ == "__main__":
    sys.exit(main())
