"""Reads the calls that the last checkpoint covers, as soon as a new call may equal one of them. Opening a run reads no
calls.

call with a key     ─▶ many calls, and a server that looks keys up: one lookup
                       otherwise: all calls, once
call without a key  ─▶ a process that did not resume at the checkpoint: all calls, once
"""

from __future__ import annotations

from ._api import RECOVERY_PAGE, Api
from ._replay import CallKey, RecordedCall, Replay
from ._wire import Steps
from .errors import Usage

LISTED_MAX = RECOVERY_PAGE
"""The highest number that a checkpoint covers if a list of its calls costs one request."""
KEY_BYTES_MAX = 1024
"""The maximum number of bytes of a key that is looked up: proxies limit the length of a URL."""


class Covered:
    """The calls of a run that its last checkpoint covers."""

    def __init__(self, api: Api, run_id: str) -> None:
        self._api, self._run_id = api, run_id

    def find(self, replay: Replay, key: CallKey) -> Steps[None]:
        """Adds the covered call with a key, or the covered calls without a key, if the run has them."""
        if not replay.needs_covered(key):
            return
        if key is not None and (yield from self._can_look_up(replay, key)):
            try:
                found = yield from self._api.call_with_key(self._run_id, *key, replay.position)
            except Usage:
                # Another server of the connection answered, which lacks the feature.
                found = {}
            if found is None:
                return
            # A call that ended later may be another process's: this handle must notice that it lost the run.
            if (
                found.get("status") in ("completed", "failed")
                and found["position"]["offset"] <= replay.position["offset"]
            ):
                replay.add_keyed(key, RecordedCall(found["request_record_id"], found["fingerprint"], tool=key[0]))
                return
        yield from self.read_all(replay)

    def _can_look_up(self, replay: Replay, key: tuple[str, str]) -> Steps[bool]:
        """Whether a lookup costs less than the whole list, and the server has it."""
        if replay.covers <= LISTED_MAX or len(key[1].encode()) > KEY_BYTES_MAX:
            return False
        return "call_keys" in (yield from self._api.features())

    def read_all(self, replay: Replay) -> Steps[None]:
        """Adds all covered calls, once."""
        if replay.lacks_covered:
            found = yield from self._api.recovery(self._run_id, from_start=True, content=False)
            replay.add_covered(found or {"completed": [], "pending": []})
