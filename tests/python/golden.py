#!/usr/bin/env python3
"""Decodes each FILE (single-object encoding) with SCHEMA alone and prints one line of JSON: a record is an object with its
full name under "", an enum its symbol, bytes and fixed are hexadecimal, and a union the value of its branch. A sibling of
tests/java/Golden.java, whose lines must be the same.

    tests/python/golden.py SCHEMA FILE...
"""

import io
import json
import pathlib
import struct
import sys

import fastavro
import fastavro.schema

HEADER_BYTES = 10


def named(schema, names):
    """Collects the named schemas in a raw schema, by full name."""
    if isinstance(schema, list):
        for branch in schema:
            named(branch, names)
    elif isinstance(schema, dict):
        if schema["type"] in ("record", "enum", "fixed"):
            names[schema["name"]] = schema
        for field in schema.get("fields", ()):
            named(field["type"], names)
        for part in ("items", "values", "type"):
            if isinstance(schema.get(part), (dict, list)):
                named(schema[part], names)
    return names


def plain(schema, value, names):
    kind = schema if isinstance(schema, str) else schema["type"] if isinstance(schema, dict) else "union"
    if isinstance(kind, (dict, list)):
        return plain(kind, value, names)
    if kind in names and not (isinstance(schema, dict) and "name" in schema):
        return plain(names[kind], value, names)
    if kind == "union":
        return plain_union(schema, value, names)
    if kind == "record":
        fields = {field["name"]: plain(field["type"], value[field["name"]], names) for field in schema["fields"]}
        return {"": schema["name"], **fields}
    if kind == "array":
        return [plain(schema["items"], item, names) for item in value]
    if kind == "map":
        return {key: plain(schema["values"], item, names) for key, item in value.items()}
    if kind in ("bytes", "fixed"):
        return value.hex()
    # Printed as bits, because two languages print the same number differently.
    if kind == "double":
        return "double:" + struct.pack(">d", value).hex()
    if kind == "float":
        return "float:" + struct.pack(">f", value).hex()
    return value


def plain_union(branches, value, names):
    # With return_named_type the reader gives (full name, value) for every named branch.
    if isinstance(value, tuple):
        return plain(value[0], value[1], names)
    if value is None:
        return None
    branch = next(branch for branch in branches if fits(branch, value))
    return plain(branch, value, names)


def fits(branch, value):
    kind = branch["type"] if isinstance(branch, dict) else branch
    types = {"string": str, "int": int, "long": int, "double": float, "float": float, "bytes": bytes, "array": list,
             "map": dict, "boolean": bool}
    return kind in types and type(value) is types[kind]


def main():
    source = json.loads(pathlib.Path(sys.argv[1]).read_text())
    parsed = fastavro.parse_schema(source)
    fingerprint = bytes.fromhex(
        fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(source), "CRC-64-AVRO"))
    names = named(parsed, {})
    for file in sys.argv[2:]:
        data = pathlib.Path(file).read_bytes()
        if data[:2] != b"\xc3\x01" or data[2:HEADER_BYTES] != fingerprint:
            sys.exit(f"not a single object of this schema: {file}")
        body = io.BytesIO(data[HEADER_BYTES:])
        value = fastavro.schemaless_reader(body, parsed, None, return_named_type=True)
        if body.read(1):
            sys.exit(f"bytes are left over: {file}")
        print(json.dumps(plain(parsed, value, names), sort_keys=True, separators=(",", ":"), ensure_ascii=False))


main()
