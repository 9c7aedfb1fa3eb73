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
    """The list of an applied checkpoint, by hash. Without a checkpoint the next one is written whole."""

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


@dataclass(slots=True)
class _Draft:
    own: list[Json] = field(default_factory=list[Json])
    own_at: dict[bytes, int] = field(default_factory=dict[bytes, int])
    spans: list[list[int]] = field(default_factory=list[list[int]])
    new_bytes: int = 0

    def add(self, from_base: bool, at: int) -> None:
        last = self.spans[-1] if self.spans else None
        if last and last[0] == from_base and last[1] + last[2] == at:
            last[2] += 1
        else:
            self.spans.append([from_base, at, 1])


def build(
    base: MessageList, checkpoint_id: str, messages: Sequence[Json], fields: Mapping[str, Json], state: Json
) -> tuple[dict[str, Json], MessageList]:
    """The payload of the checkpoint of `messages` and `state`, and the base of the checkpoint after it.

    Linear in both lists. Raises `TooLarge` for a list that readers refuse.
    """
    texts = [encode(message).encode() for message in messages]
    hashes, sizes = tuple(_hash(text) for text in texts), tuple(len(text) for text in texts)
    if len(texts) > MESSAGES_MAX or sum(sizes) > MESSAGE_BYTES_MAX:
        message = f"a checkpoint has {len(texts)} messages of {sum(sizes)} bytes, more than {MESSAGES_MAX} or {MESSAGE_BYTES_MAX}"
        raise TooLarge(f"{message}; compact them")
    places: dict[bytes, int] = {}
    for at, digest in enumerate(base.hashes):
        places.setdefault(digest, at)
    draft, after = _Draft(), 0
    for message, digest, size in zip(messages, hashes, sizes, strict=True):
        # The place after the last one first: it keeps repeated messages in one span.
        at = after if after < len(base.hashes) and base.hashes[after] == digest else places.get(digest)
        if at is not None:
            draft.add(True, at)
            after = at + 1
            continue
        own = draft.own_at.get(digest)
        if own is None:
            own = draft.own_at[digest] = len(draft.own)
            draft.own.append(message)
            draft.new_bytes += size
        draft.add(False, own)
    payload: dict[str, Json] = {
        "type": "loop_checkpoint",
        "checkpoint_id": checkpoint_id,
        **fields,
        "schema_version": 1,
    }
    on_base = draft.new_bytes + SPAN_BYTES * len(draft.spans) + BASE_BYTES < sum(sizes)
    if base.checkpoint_id is not None and on_base:
        payload["base"] = base.checkpoint_id
        payload["messages"] = draft.own
        if draft.spans != _default_spans(len(base.hashes), len(draft.own)):
            payload["spans"] = [{"from_base": bool(b), "from": at, "count": count} for b, at, count in draft.spans]
    else:
        payload["messages"] = list(messages)
    if state is not None:
        payload["state"] = state
    payload["state_hash"] = _state_hash(hashes, state)
    return payload, MessageList(checkpoint_id, hashes, sizes)


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
