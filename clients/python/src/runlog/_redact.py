"""Redacts content before a record is made. Pure.

Fingerprints and argument hashes cover the original arguments, so a call is recognised although its arguments are
redacted. Content that is read from the journal is redacted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ._json import Json

REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True)
class Redaction:
    """The content to remove from arguments, results, failures, turns and checkpoints. `policy_id` names the policy in
    every record.

    Ids, keys, statuses and tool names never change, because the journal finds, judges and recognises records by them.
    """

    policy_id: str
    pointers: tuple[tuple[str | None, tuple[str, ...]], ...] = ()
    patterns: tuple[Callable[[str], str], ...] = ()

    def pointer(self, tool: str | None, pointer: str) -> Redaction:
        """Removes the value at a JSON pointer (RFC 6901; a segment `*` matches every member or element) from
        arguments and results of `tool`. Without a tool, from arguments and results of all tools, turns, and messages
        and state of checkpoints."""
        segments = tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
        return replace(self, pointers=(*self.pointers, (tool, segments)))

    def texts(self, pattern: Callable[[str], str]) -> Redaction:
        """Applies a function to every string value and to the text of failures. Names of members are not changed."""
        return replace(self, patterns=(*self.patterns, pattern))

    def json(self, tool: str | None, value: Json) -> Json:
        """Redacts a value."""
        return self._change(value, [segments for only, segments in self.pointers if only is None or only == tool])

    def text(self, text: str) -> str:
        """Redacts a text."""
        for pattern in self.patterns:
            text = pattern(text)
        return text

    def _change(self, value: Json, pointers: list[tuple[str, ...]]) -> Json:
        if any(not pointer for pointer in pointers):
            return REDACTED
        if isinstance(value, str):
            return self.text(value)
        if not pointers and not self.patterns:
            return value
        if isinstance(value, Mapping):
            return {name: self._change(member, _below(pointers, name)) for name, member in value.items()}
        if isinstance(value, Sequence):
            return [self._change(element, _below(pointers, str(at))) for at, element in enumerate(value)]
        return value


def _below(pointers: list[tuple[str, ...]], name: str) -> list[tuple[str, ...]]:
    return [pointer[1:] for pointer in pointers if pointer[0] in ("*", name)]
