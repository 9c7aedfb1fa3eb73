"""The servers of a connection, and the tries of an operation on them.

    try ─▶ the current server ─┬─ answered ─▶ it stays the current server
                               └─ no answer, overloaded, stale, a mirror ─▶ pause ─▶ try the next server, with the same bytes

Every server that is asked must serve the same journal: another journal does not know the run, and would let its effects
run again.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from ._wire import CONNECT_TIMEOUT, NoResponse, Request
from .config import Config
from .errors import (
    Action,
    Error,
    Forbidden,
    Happened,
    Internal,
    Overloaded,
    Stale,
    Unauthenticated,
    Unavailable,
    is_mirror,
    visible,
)

Object = dict[str, Any]

PAUSE_MIN = 0.05
PAUSE_MAX = 1.0
SLACK = 5.0
"""The client waits this much longer than the deadline that it sends to the server."""
_NOTHING_APPENDED = frozenset(("usage", "invalid", "too_large", "missing_content", "overloaded", "reconcile_required"))
_LOGGER = logging.getLogger("runlog")


class Servers:
    """The servers of a connection. Each operation requests the server first that answered last."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.answered = False
        """Whether a server has ever answered."""
        self._urls, self._current = config.servers, 0
        self._journals: dict[str, Object] = {}

    @property
    def current(self) -> str:
        """The URL of the server to ask."""
        return self._urls[self._current]

    @property
    def journal(self) -> Object | None:
        """The current server's answer about its journal, if it was read."""
        return self._journals.get(self.current)

    @property
    def must_be_identified(self) -> bool:
        """Whether it is still unknown if the current server serves the same journal as the other servers."""
        return len(self._urls) > 1 and self.journal is None

    def identify(self, journal: Object) -> None:
        """Keeps the current server's answer about its journal. Raises `Internal` if another server has another journal."""
        for url, known in self._journals.items():
            if known["journal_id"] != journal["journal_id"]:
                message = (
                    f"{self.current} serves journal {journal['journal_id']}, and {url} serves {known['journal_id']}: name servers "
                    "of one journal"
                )
                raise Internal(message, action=Action.FIX_THE_INPUT)
        self._journals[self.current] = journal

    def leave(self, server: str) -> None:
        """Makes the next server the current server, unless another operation has already left `server`."""
        if server == self.current:
            self._current = (self._current + 1) % len(self._urls)

    def request(self, method: str, path: str, seconds: float, body: bytes | None = None, **headers: str) -> Request:
        """A request to the current server, with `deadline_ms`."""
        path = f"{path}{'&' if '?' in path else '?'}deadline_ms={int(seconds * 1000)}"
        connect = CONNECT_TIMEOUT if self.answered else self.config.connect_deadline
        return Request(method, path, body, headers, seconds + SLACK, connect / len(self._urls), self.current)

    def no_answer(self, server: str, error: NoResponse) -> Unavailable:
        """Makes the error for a request without an answer."""
        happened = Happened.UNKNOWN if error.sent else Happened.NOTHING
        if error.remedy is not None:
            action = Action.RETRY if self.answered else Action.FIX_THE_INPUT
            return Unavailable(
                f"no answer from {server}: {error.remedy} ({error.why})", action=action, happened=happened
            )
        hint = "; is `runlog serve` running there?" if not self.answered else ""
        return Unavailable(f"no answer from {server}: {error.why}{hint}", happened=happened)


class Tries:
    """The tries of one operation, until its deadline."""

    def __init__(self, servers: Servers, seconds: float) -> None:
        self._servers, self._count, self._pause = servers, 0, PAUSE_MIN
        self._begun = time.monotonic()
        self._ends = self._begun + seconds
        self._maybe_sent = False
        self._mirrors = 0
        self.server = servers.current
        """The server of the last try."""

    def seconds(self) -> float:
        """Begins a try. Returns its time limit, seconds: a part of the remaining time, if there are other servers to
        try."""
        self.server = self._servers.current
        left = max(0.1, self._ends - time.monotonic())
        return max(0.1, left / len(self._servers.config.servers))

    def failed(self, error: Error) -> float:
        """Returns the pause before the next try. Raises the error if there is none, with all tries in its `happened`."""
        servers = self._servers
        self._maybe_sent = self._maybe_sent or error.happened is Happened.UNKNOWN or _may_be_in_the_log(error)
        self._count += 1
        others = len(servers.config.servers) - 1
        transient = isinstance(error, Unavailable | Overloaded | Stale)
        if transient:
            servers.leave(self.server)
        # Requests each server once, also if another server did not answer.
        is_round = self._count > others
        # A mirror does not end the tries while another server, which may be the home's, does not answer.
        self._mirrors = self._mirrors + 1 if is_mirror(error.problem) else 0
        is_final = error.action is not Action.RETRY and (self._mirrors == 0 or self._mirrors > others)
        again = transient and not (is_final and is_round)
        asked = error.problem.get("retry_after")
        # Only the header is trusted: the member of a problem document could be anything.
        if isinstance(error, Overloaded) and isinstance(asked, float):
            self._pause = max(PAUSE_MIN, asked)
        elif is_round:
            self._pause = min(self._pause * 2, PAUSE_MAX)
        ends = self._ends
        if is_round and not servers.answered:
            ends = min(ends, self._begun + servers.config.connect_deadline)
        if not again or time.monotonic() + self._pause >= ends:
            error.happened = Happened.UNKNOWN if self._maybe_sent else Happened.NOTHING
            raise error
        if self._count == 1:
            _LOGGER.warning("%s; trying again for %.0f s", visible(error.message), ends - time.monotonic())
        return self._pause


def _may_be_in_the_log(error: Error) -> bool:
    if isinstance(error, Unauthenticated | Forbidden) or is_mirror(error.problem):
        return False
    return error.kind not in _NOTHING_APPENDED and not isinstance(error.__context__, NoResponse)
