"""Reads a thread: its index, and the records of its checkpoints and writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator

from .._api import Api, Object
from .._records import bytes_of, digest
from .._wire import Steps
from ..errors import MissingContent
from ._index import ForeignThread, Head, Index, Marker, RemovedContent

LOG = logging.getLogger("runlog")
PAGE_MIN = 10
"""Records of the smallest page that is read from the end of a thread."""


class Reader:
    """A thread as the journal has it."""

    def __init__(self, api: Api, prefix: str, thread_id: str) -> None:
        self.api, self.prefix, self.run_id = api.for_run(), prefix, prefix + thread_id
        self._warned_at: int | None = None
        """The run's `next_checkpoint_seq` at the last warning about removed content."""
        self._warned_of_records = False

    def head(self, *, full: bool = False, lost: bool = False) -> Steps[Head | None]:
        """Reads the run and its index from one state of the log; with `full`, also the messages of the latest loop
        checkpoint. Raises `MissingContent` if the checkpoint's content is lost and `lost` is false, and `ForeignThread`
        for another saver's thread."""
        found = yield from self.api.resume_point(self.run_id, full=full)
        if found is None:
            return None
        index = yield from self.index_of(found, lost=lost)
        loop: Object | None = None if index.removed else found["checkpoint"]
        return Head(
            found["writer_id"], found["epoch"], found["next_checkpoint_seq"], found["hash"], index, found["status"],
            loop["checkpoint_id"] if loop else None, loop if full else None,
        )  # fmt: skip

    def index_of(self, recovery: Object, *, lost: bool = False) -> Steps[Index]:
        """The index in the latest loop checkpoint. If retention removed its content, warns, and returns the empty index
        of a new incarnation."""
        checkpoint: Object | None = recovery["checkpoint"]
        if (checkpoint["checkpoint_seq"] if checkpoint else 0) >= recovery["next_checkpoint_seq"] - 1:
            index = Index.of(checkpoint)
            if index.prefix not in (None, self.prefix):
                raise ForeignThread.of(self.run_id, self.prefix, index.prefix)
            return index
        missing = [each for each in recovery["missing_content"] if each["payload_type"] == "loop_checkpoint"]
        if missing and not lost:
            message = f"the latest checkpoint of run {self.run_id} cannot be read: its content is lost"
            raise MissingContent(
                f"{message}; restore it, or delete the thread", run_id=self.run_id, record_id=missing[0]["record_id"]
            )
        if self._warned_at != recovery["next_checkpoint_seq"]:
            self._warned_at = recovery["next_checkpoint_seq"]
            LOG.warning(
                "the latest checkpoint of run %s, or a message in it, was removed, as by `runlog retention`: the thread has no "
                "checkpoints now, and its next checkpoint starts it anew",
                self.run_id,
            )
        return Index((yield from self._last_incarnation()) + 1, removed=True)

    def _last_incarnation(self) -> Steps[int]:
        """The thread's newest incarnation with a record. Records keep their correlation entries when their content is
        removed."""
        low, high = 0, 1
        while (yield from self._has_incarnation(high)):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if (yield from self._has_incarnation(middle)) else (low, middle)
        return low

    def _has_incarnation(self, incarnation: int) -> Steps[bool]:
        lines, _ = yield from self.api.records_page(self.run_id, thread_entry(incarnation), None, limit=1)
        return bool(lines)

    def markers(self, incarnation: int, correlation: tuple[str, str]) -> Steps[list[Marker]]:
        """Reads the checkpoints with a correlation entry, without deleted checkpoints, in the order in which they were
        written."""
        lines = yield from self.api.records(self.run_id, correlation)
        found = list(self._markers_in(reversed(lines), incarnation, set()))
        return found[::-1]

    def newest_markers(
        self, incarnation: int, ns: str | None, cursor: str | None, limit: int, seen: set[tuple[str, str]]
    ) -> Steps[tuple[list[Marker], str | None]]:
        """Reads a page of the checkpoints of a namespace or a thread, without deleted checkpoints, last written first,
        and the next page's cursor. `seen` has the keys of earlier pages. A server without the feature `order` returns
        all."""
        entry = thread_entry(incarnation) if ns is None else namespace_entry(incarnation, ns)
        if "order" in (yield from self.api.features()):
            lines, following = yield from self.api.records_page(self.run_id, entry, cursor, limit, "desc")
        else:
            lines, following = (yield from self.api.records(self.run_id, entry))[::-1], None
        found = self._markers_in(lines, incarnation, seen)
        return [marker for marker in found if ns is None or marker.ns == ns], following

    def _markers_in(
        self, newest_first: Iterable[Object], incarnation: int, seen: set[tuple[str, str]]
    ) -> Iterator[Marker]:
        """The checkpoints in records, which come newest first. Only a key's newest record counts."""
        for line in newest_first:
            if (found := self._content(line)) is None:
                continue
            kind, content = found
            if content["incarnation"] != incarnation:
                continue
            if kind == "checkpoint":
                marker = Marker(
                    content["ns"], content["id"], content["parent"], content["covers"], content["loop"],
                    content["metadata"],
                )  # fmt: skip
                if marker.key not in seen:
                    seen.add(marker.key)
                    yield marker
            elif kind == "tombstone":
                seen.update((ns, checkpoint_id) for ns, checkpoint_id in content["keys"])

    def all_markers(self, incarnation: int) -> Steps[list[Marker]]:
        """All checkpoints of the thread."""
        return self.markers(incarnation, thread_entry(incarnation))

    def find(self, index: Index, ns: str, checkpoint_id: str | None) -> Steps[Marker | None]:
        """Finds a checkpoint by its id, or the newest checkpoint of a namespace."""
        if checkpoint_id is not None:
            entry = ("lg.checkpoint", digest(index.incarnation, ns, checkpoint_id))
            found = yield from self.markers(index.incarnation, entry)
            return next((marker for marker in found if marker.key == (ns, checkpoint_id)), None)
        head = index.heads.get(ns)
        if head is not None:
            return Marker(ns, head[0], None, head[1], head[2])
        if not index.more:
            return None
        cursor, seen = None, set[tuple[str, str]]()
        while True:
            page, cursor = yield from self.newest_markers(index.incarnation, ns, cursor, PAGE_MIN, seen)
            for marker in page:
                if (yield from self.api.landed(self.run_id, marker.loop)) is not None:
                    return marker
            if cursor is None:
                return None

    def load(self, marker: Marker, latest: Object | None = None) -> Steps[Object | None]:
        """Reads the loop checkpoint that contains a LangGraph checkpoint; uses `latest` if it has the right id. `None`
        if it is not in the journal."""
        if latest is not None and latest["checkpoint_id"] == marker.loop:
            return latest
        if "checkpoints" in (yield from self.api.features()):
            found = yield from self.api.checkpoint_by_id(self.run_id, marker.loop)
        else:
            found = yield from self.api.checkpoint(self.run_id, marker.covers)
        if found is not None and found["checkpoint_id"] == marker.loop:
            return found
        if (yield from self.api.landed(self.run_id, marker.loop)) is None:
            return None
        message = f"checkpoint {marker.id} of run {self.run_id} cannot be read: its content was removed, as by `runlog retention`"
        raise RemovedContent(message, run_id=self.run_id, record_id=marker.loop)

    def writes(self, incarnation: int, ns: str, checkpoint_id: str) -> Steps[list[Object]]:
        """Reads the writes of a checkpoint, record by record, in their order."""
        entry = ("lg.writes", digest(incarnation, ns, checkpoint_id))
        lines = yield from self.api.records(self.run_id, entry)
        return [found[1] for line in lines if (found := self._content(line)) is not None]

    def _content(self, line: Object) -> tuple[str, Object] | None:
        """The type and the content of a record; `None` if retention removed it."""
        record: Object | None = line.get("record")
        if record is None:
            what = f"record {line['record_id']} of run {self.run_id} cannot be read"
            if "dropped" in (line.get("payload") or ()):
                if not self._warned_of_records:
                    LOG.warning(
                        "%s: `runlog retention` removed its content. Further removed records are not reported", what
                    )
                    self._warned_of_records = True
                return None
            raise MissingContent(f"{what}: its content is lost", run_id=self.run_id, record_id=line["record_id"])
        payload = record["payload"]
        return payload["payload_type"], json.loads(bytes_of(payload["bytes"]))


def thread_entry(incarnation: int) -> tuple[str, str]:
    """The correlation entry of a thread's records."""
    return "lg.thread", str(incarnation)


def namespace_entry(incarnation: int, ns: str) -> tuple[str, str]:
    """The correlation entry of a namespace's records."""
    return "lg.namespace", digest(incarnation, ns)
