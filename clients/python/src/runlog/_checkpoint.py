"""Message lists of checkpoints: a record contains only messages that its base's list lacks (docs/spec.md,
"Checkpoints").

    base    a b c d e f          (an applied checkpoint's list)
    own     X Y                  (this record's messages)
    spans   base 0..2, own 0..1, base 3..6, own 1..2
    list    a b X d e f Y
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._json import Json, encode
from .errors import TooLarge

MESSAGES_MAX = 1 << 16
MESSAGE_BYTES_MAX = 64 << 20
SPAN_BYTES = 16
BASE_BYTES = 80


@dataclass(frozen=True, slots=True)
class MessageList:
    """The list of an applied checkpoint, by hash. Without a checkpoint the next checkpoint is written whole."""

    checkpoint_id: str | None = None
    hashes: tuple[bytes, ...] = ()
    sizes: tuple[int, ...] = ()

    @staticmethod
    def of(checkpoint: Mapping[str, Any] | None) -> MessageList:
        """The list of a checkpoint that was read with the texts of its messages."""
        if checkpoint is None:
            return MessageList()
        texts = [text.encode() for text in checkpoint["message_texts"]]
        return MessageList(checkpoint["checkpoint_id"], tuple(map(_hash, texts)), tuple(map(len, texts)))


@dataclass(frozen=True, slots=True)
class Kept:
    """A message of the base's list, in place of its content."""

    digest: bytes
    size: int

    @staticmethod
    def of(text: bytes) -> Kept:
        """The message with a text."""
        return Kept(_hash(text), len(text))


@dataclass(slots=True)
class _Draft:
    own: list[Json] = field(default_factory=list[Json])
    own_at: dict[bytes, int] = field(default_factory=dict[bytes, int])
    spans: list[list[int]] = field(default_factory=list[list[int]])
    new_bytes: int = 0

    def add(self, from_base: bool, at: int, count: int = 1) -> None:
        last = self.spans[-1] if self.spans else None
        if last and last[0] == from_base and last[1] + last[2] == at:
            last[2] += count
        else:
            self.spans.append([from_base, at, count])


def build(
    base: MessageList, checkpoint_id: str, messages: Sequence[Json | Kept], fields: Mapping[str, Json], state: Json
) -> tuple[dict[str, Json], MessageList]:
    """The payload of the checkpoint of `messages` and `state`, and the base of the checkpoint after it.

    Linear in both lists. Raises `TooLarge` for a list that readers refuse.
    """
    parts = [each if isinstance(each, Kept) else Kept.of(encode(each).encode()) for each in messages]
    following = MessageList(checkpoint_id, tuple(part.digest for part in parts), tuple(part.size for part in parts))
    hashes, size = following.hashes, sum(following.sizes)
    if len(parts) > MESSAGES_MAX or size > MESSAGE_BYTES_MAX:
        message = (
            f"a checkpoint has {len(parts)} messages of {size} bytes, more than {MESSAGES_MAX} or {MESSAGE_BYTES_MAX}"
        )
        raise TooLarge(f"{message}; compact them")
    draft, keeps = _draft(base, messages, parts)
    payload: dict[str, Json] = {
        "type": "loop_checkpoint",
        "checkpoint_id": checkpoint_id,
        **fields,
        "schema_version": 1,
    }
    on_base = keeps or draft.new_bytes + SPAN_BYTES * len(draft.spans) + BASE_BYTES < size
    if base.checkpoint_id is not None and on_base:
        payload["base"] = base.checkpoint_id
        payload["messages"] = draft.own
        if draft.spans != _default_spans(len(base.hashes), len(draft.own)):
            payload["spans"] = [{"from_base": bool(b), "from": at, "count": count} for b, at, count in draft.spans]
    else:
        payload["messages"] = [each for each in messages if not isinstance(each, Kept)]
    if state is not None:
        payload["state"] = state
    payload["state_hash"] = _state_hash(hashes, state)
    return payload, following


def _draft(base: MessageList, messages: Sequence[Json | Kept], parts: Sequence[Kept]) -> tuple[_Draft, bool]:
    """The own messages and spans of a list on a base, and whether it has messages without their content."""
    draft, keeps, places = _Draft(), False, dict[bytes, int]()
    # Most lists begin with their whole base.
    after = 0
    while after < min(len(parts), len(base.hashes)) and parts[after].digest == base.hashes[after]:
        after += 1
    if after:
        draft.add(True, 0, after)
        keeps = any(isinstance(each, Kept) for each in messages[:after])
    if after < len(parts):
        # The first position of a digest counts.
        places = dict(zip(reversed(base.hashes), reversed(range(len(base.hashes))), strict=True))
    for message, part in zip(messages[after:], parts[after:], strict=True):
        # Tries the position after the last message first, which keeps repeated messages in one span.
        following = after < len(base.hashes) and base.hashes[after] == part.digest
        at = after if following else places.get(part.digest)
        if at is not None:
            draft.add(True, at)
            after, keeps = at + 1, keeps or isinstance(message, Kept)
            continue
        if isinstance(message, Kept):
            raise AssertionError("a message without its content is not in the base's list")
        own = draft.own_at.get(part.digest)
        if own is None:
            own = draft.own_at[part.digest] = len(draft.own)
            draft.own.append(message)
            draft.new_bytes += part.size
        draft.add(False, own)
    return draft, keeps


def _default_spans(base: int, own: int) -> list[list[int]]:
    return [[from_base, 0, count] for from_base, count in ((True, base), (False, own)) if count]


def _hash(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _state_hash(hashes: Sequence[bytes], state: Json) -> str:
    """SHA-256 over the messages' hashes and the SHA-256 of the Avro encodings of usage, reports and state."""
    rest = bytearray((0, 0))  # no usage, no reports
    if state is None:
        rest.append(0)
    else:
        text = encode(state).encode()
        rest += bytes((2, *_long(len(text)))) + text
    return hashlib.sha256(b"".join(hashes) + _hash(bytes(rest))).hexdigest()


def _long(value: int) -> bytes:
    """A length as Avro writes a long: zigzag, seven bits at a time."""
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
