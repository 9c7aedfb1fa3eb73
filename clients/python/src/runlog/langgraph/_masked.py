"""A thread for people who may not read its content: its checkpoints without ids, values and metadata."""

from __future__ import annotations

from .._api import Api, Object
from .._wire import Steps
from ._index import FAMILY

PAGE = 100


def masked_checkpoints(api: Api, run_id: str, last: int) -> Steps[list[Object] | None]:
    """Reads the last complete checkpoints, newest first. Includes deleted checkpoints, since only the masked content
    shows that they are deleted. `None` if the server lacks the feature `order`."""
    if "order" not in (yield from api.features()):
        return None
    found, loops, writes = list[Object](), dict[int, Object](), 0
    cursor: str | None = None
    while True:
        lines, cursor = yield from api.newest_records(run_id, PAGE, cursor)
        for line in lines:
            payload: Object = line.get("payload") or {}
            if payload.get("session_id") == FAMILY:
                loops[int(payload["covers_journal_seq"])] = line
            if payload.get("family") != FAMILY:
                continue
            writes += payload["payload_type"] == "writes"
            loop = loops.get(line["journal_seq"])
            if payload["payload_type"] == "checkpoint" and loop is not None:
                found.append(_shown(loop, payload["bytes"], writes))
                writes = 0
            if len(found) == last:
                return found
        if not cursor:
            return found


def _shown(loop: Object, mask: object, writes: int) -> Object:
    return {
        "checkpoint": mask,
        "record": loop["record_id"],
        "at": loop["timestamp"],
        "metadata": mask,
        "values": loop["payload"]["messages"],
        "writes": [mask] * writes,
    }
