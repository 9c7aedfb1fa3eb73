"""Which checkpoints the loops of one saver object have continued: of two loops that read the same checkpoint, the first to
continue it goes on, and the other one gets `Fenced`.

    loop a  read p ────── put c (after p)
    loop b      read p ──────────────────── put d (after p) ─▶ `Fenced`
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from ..errors import Fenced
from ._index import Key

KEPT_MAX = 1024
Version = tuple[int, int]
"""The run's epoch, and the number of its next checkpoint."""


class Loops:
    """The continued and the deleted checkpoints of a thread."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._ended: OrderedDict[Key, tuple[str | None, Version]] = OrderedDict()
        """The checkpoint that continued another checkpoint, or `None` for a deleted checkpoint; and the thread's version then."""

    def check(self, parent: Key, checkpoint_id: str | None, *, has_read: bool) -> None:
        """Raises `Fenced` if `parent` was deleted. Raises it also for a loop that has read `parent`, if another loop has
        continued it: with another checkpoint than `checkpoint_id`."""
        if parent not in self._ended:
            return
        next_id, _ = self._ended[parent]
        if next_id is None:
            how = "was deleted after this loop read it"
        elif has_read and next_id != checkpoint_id:
            how = "was continued by another loop of this saver"
        else:
            return
        which = f"checkpoint {parent[1]}" if parent[1] is not None else "the empty thread"
        message = f"{which} of run {self._run_id} {how}: invoke the graph again to read the thread and continue it"
        raise Fenced(message, run_id=self._run_id)

    def note_continued(self, parent: Key, checkpoint_id: str, version: Version) -> None:
        """Notes that a loop has continued `parent`."""
        self._note(parent, checkpoint_id, version)

    def note_deleted(self, keys: Collection[Key], version: Version) -> None:
        """Notes a deleted thread, whose checkpoints loops in flight must not continue. A loop may begin it again."""
        for key in keys:
            if key[1] is None:
                self._ended.pop(key, None)
            else:
                self._note(key, None, version)

    def note_put(self, key: Key) -> None:
        """Notes a checkpoint that exists, also again after its thread was deleted."""
        if key in self._ended and self._ended[key][0] is None:
            del self._ended[key]

    def note_read(self, key: Key, version: Version, *, latest: bool) -> None:
        """Lets a loop continue a checkpoint that was read by its id, or that is the newest one again."""
        if key in self._ended and (not latest or version >= self._ended[key][1]):
            del self._ended[key]

    def _note(self, key: Key, next_id: str | None, version: Version) -> None:
        self._ended[key] = (next_id, version)
        self._ended.move_to_end(key)
        if len(self._ended) > KEPT_MAX:
            self._ended.popitem(last=False)
