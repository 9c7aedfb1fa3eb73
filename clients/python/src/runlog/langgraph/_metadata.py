"""The index of metadata: correlation entries by which the server finds the threads with a value.

    put ─▶ lg.indexed   the first checkpoint of a thread whose later checkpoints have entries too
        ─▶ lg.metadata  a value that this object has not written yet
    list(None, filter) ─▶ the threads with the entries of the filter, and the threads without `lg.indexed`

The entries name too many threads rather than too few: a list still compares the metadata of each checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.serde.base import SerializerProtocol

from .._api import Api
from .._records import digest
from .._wire import Steps
from ._serde import StrictSerializer

Entry = tuple[str, str]
NAMES_MAX = 32
"""A checkpoint with more names of metadata has one entry for all of them. A record has up to 64 entries that are found."""
_COMMON = frozenset(("source", "step", "parents"))
"""Names that LangGraph gives to every checkpoint: they select no threads."""
_NEVER_EQUAL = (type(None), bytes, list, tuple, dict)
"""Types whose values equal no text and no number."""


def mark(prefix: str) -> Entry:
    """The entry of a thread that is in the index."""
    return "lg.indexed", digest(prefix)


def any_metadata(prefix: str) -> Entry:
    """The entry of a checkpoint that may have any metadata."""
    return "lg.metadata", digest(prefix)


def _entry(prefix: str, name: str, value: object) -> Entry | None:
    """The entry of a text or a number; `None` for any other value. Values that are equal have the same entry."""
    if isinstance(value, str):
        return "lg.metadata", digest(prefix, name, "text", str.__str__(value))
    if isinstance(value, (int, float)) and math.isfinite(value):
        return "lg.metadata", digest(prefix, name, "number", int(value) if value == int(value) else float(value))
    return None


def entries(prefix: str, serde: SerializerProtocol, metadata: Mapping[str, Any]) -> list[Entry]:
    """The entries of a checkpoint. A digest lets a reader guess the value, so encrypted metadata and metadata of a serializer of
    the user's own get none."""
    if type(serde) is not StrictSerializer:
        return [any_metadata(prefix)]
    found = {name: _entry(prefix, name, value) for name, value in metadata.items() if name not in _COMMON}
    known = [entry for entry in found.values() if entry is not None]
    unknown = [name for name, entry in found.items() if entry is None and type(metadata[name]) not in _NEVER_EQUAL]
    return [any_metadata(prefix)] if unknown or len(known) > NAMES_MAX else known


def candidates(
    api: Api, prefix: str, run_ids: Sequence[str], alternatives: Sequence[Mapping[str, Any]]
) -> Steps[list[str]]:
    """The runs of a prefix that may have a checkpoint with all values of one of the filters."""
    found = set[str]()
    for filter in alternatives:
        names = [(name, value) for name, value in filter.items() if name not in _COMMON]
        wanted = [entry for name, value in names if (entry := _entry(prefix, name, value)) is not None]
        if not wanted or "correlations" not in (yield from api.features()):
            return list(run_ids)
        having = yield from api.runs_with(wanted[0])
        for entry in wanted[1:]:
            having &= yield from api.runs_with(entry)
        found |= having
    if not run_ids or not alternatives:
        return []
    indexed, of_any = (yield from api.runs_with(mark(prefix))), (yield from api.runs_with(any_metadata(prefix)))
    return [run_id for run_id in run_ids if run_id in found or run_id in of_any or run_id not in indexed]
