"""The index of a thread: the newest checkpoint of each namespace. The state of each loop checkpoint carries it.

The newest checkpoint is the last applied checkpoint, even if another checkpoint has a higher id: an id contains the
time of the machine that made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

from .._api import Object
from .._json import Json
from ..errors import Action, Conflict, MissingContent

FAMILY = "langgraph"
HEADS_MAX = 32
"""Namespaces whose newest checkpoint the index names. Others are found by a scan of their records."""

Key = tuple[str, str | None]
"""Namespace and checkpoint id; no id before the first checkpoint."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The location of a checkpoint."""

    ns: str
    id: str
    parent: str | None
    covers: int
    loop: str
    """The id of the loop checkpoint."""
    metadata: Json = None

    @property
    def key(self) -> tuple[str, str]:
        """Its key within the thread."""
        return self.ns, self.id


@dataclass(frozen=True, slots=True)
class Index:
    """The current content of a thread."""

    incarnation: int = 0
    heads: dict[str, tuple[str, int, str]] = field(default_factory=dict[str, tuple[str, int, str]])
    """The newest checkpoint of a namespace: its id, the number that it covers, its loop checkpoint. In LRU order."""
    more: bool = False
    """Whether `heads` lacks namespaces."""
    prefix: str | None = None
    """The prefix of the saver that wrote the thread; `None` if an older version wrote it."""
    removed: bool = False
    """Whether the content of the latest loop checkpoint was removed. The thread then has no checkpoints."""

    @staticmethod
    def of(checkpoint: Object | None) -> Index:
        """Reads the index from the state of the run's latest loop checkpoint."""
        state: Any = checkpoint and checkpoint.get("state")
        found: Any = cast("dict[str, Any]", state).get(FAMILY) if isinstance(state, dict) else None
        if found is None:
            return Index(more=checkpoint is not None)
        stored: dict[str, list[Any]] = found["heads"]
        heads = {ns: (str(head[0]), int(head[1]), str(head[2])) for ns, head in stored.items()}
        return Index(found["incarnation"], heads, found["more"], found.get("prefix"))

    def state(self, entry: Json) -> Json:
        """The state of a loop checkpoint."""
        heads: Json = {ns: list(head) for ns, head in self.heads.items()}
        kept: dict[str, Json] = {"incarnation": self.incarnation, "heads": heads, "more": self.more}
        return {FAMILY: {**kept, "prefix": self.prefix, "entry": entry}}

    def with_head(self, marker: Marker) -> Index:
        """Returns a copy with another checkpoint, which is the newest one of its namespace."""
        heads, more = dict(self.heads), self.more
        heads.pop(marker.ns, None)
        heads[marker.ns] = (marker.id, marker.covers, marker.loop)
        while len(heads) > HEADS_MAX:
            del heads[next(ns for ns in heads if ns)]
            more = True
        return replace(self, heads=heads, more=more)

    def without(self, keys: Collection[tuple[str, str]], left: Iterable[Marker]) -> Index:
        """Returns a copy without some checkpoints. `left` has the others, in the order of their writes."""
        heads = {ns: head for ns, head in self.heads.items() if (ns, head[0]) not in keys}
        index = replace(self, heads=heads)
        for marker in left:
            if marker.ns not in heads:
                index = index.with_head(marker)
        return index


class ForeignThread(Conflict, action=Action.FIX_THE_INPUT):
    """The run is a thread of a saver with another prefix, which extends this saver's prefix or is extended by it."""

    @staticmethod
    def of(run_id: str, prefix: str, other: str) -> ForeignThread:
        """Names both threads."""
        own, others = run_id.removeprefix(prefix), run_id.removeprefix(other)
        return ForeignThread(
            f"run {run_id} is the thread {others!r} of a saver with the prefix {other!r}, and not the thread {own!r} of the prefix "
            f"{prefix!r}: give the savers prefixes that do not begin with each other",
            run_id=run_id,
        )


class RemovedContent(MissingContent):
    """The content of a checkpoint, or of a message in it, was removed on purpose. It need not be restored."""


@dataclass(frozen=True, slots=True)
class Head:
    """The current state of a run."""

    writer_id: str
    epoch: int
    next_checkpoint_seq: int
    hash: str
    """The run hash, which changes with every applied record."""
    index: Index
    status: str
    """`open`, or how the run ended."""
    loop_id: str | None = None
    """The id of the run's latest loop checkpoint."""
    loop: Object | None = None
    """That checkpoint with its messages, if requested."""

    @property
    def version(self) -> tuple[int, int]:
        """A version that changes with every claim and every checkpoint."""
        return self.epoch, self.next_checkpoint_seq
