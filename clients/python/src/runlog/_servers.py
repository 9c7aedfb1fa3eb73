"""The servers of a connection, and the tries of an operation on them.

    try ─▶ the current server ─┬─ answered ─▶ it stays the current server
                               ├─ no answer, overloaded, stale, a mirror ─▶ pause ─▶ try the next server, with the same bytes
                               └─ does not hold the run's partition ─▶ try a server that holds it, with the same bytes

Every server that is asked must serve the same journal: another journal does not know the run, and would let its effects
run again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
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
    instances_of,
    is_mirror,
    is_not_here,
    visible,
)

Object = dict[str, Any]

PAUSE_MIN = 0.05
PAUSE_MAX = 1.0
SLACK = 5.0
"""The client waits this much longer than the deadline that it sends to the server."""
_NOTHING_APPENDED = frozenset(("usage", "invalid", "too_large", "missing_content", "overloaded", "reconcile_required"))
_LOGGER = logging.getLogger("runlog")


class _Common:
    """The state of the servers that all handles of a connection share."""

    def __init__(self) -> None:
        self.answered, self.current = False, 0
        self.journals: dict[str, Object] = {}


class Servers:
    """The servers of a connection. Each operation requests the server first that answered last.

    A handle whose run's partition is on some of the servers remembers its server apart from the others."""

    def __init__(self, config: Config, common: _Common | None = None) -> None:
        self.config = config
        self._urls, self._common = config.servers, common or _Common()
        self._own: int | None = None
        """The server of this handle, once another server has refused it as not holding its partition."""

    def for_run(self) -> Servers:
        """The same servers for a handle on one run."""
        return Servers(self.config, self._common)

    @property
    def answered(self) -> bool:
        """Whether a server has ever answered."""
        return self._common.answered

    @answered.setter
    def answered(self, answered: bool) -> None:
        self._common.answered = answered

    @property
    def _current(self) -> int:
        return self._common.current if self._own is None else self._own

    @property
    def current(self) -> str:
        """The URL of the server to ask."""
        return self._urls[self._current]

    @property
    def journal(self) -> Object | None:
        """The current server's answer about its journal, if it was read."""
        return self._common.journals.get(self.current)

    @property
    def must_be_identified(self) -> bool:
        """Whether it is still unknown if the current server serves the same journal as the other servers."""
        return len(self._urls) > 1 and self.journal is None

    def identify(self, journal: Object) -> None:
        """Keeps the current server's answer about its journal. Raises `Internal` if another server has another journal."""
        for url, known in self._common.journals.items():
            if known["journal_id"] != journal["journal_id"]:
                message = (
                    f"{self.current} serves journal {journal['journal_id']}, and {url} serves {known['journal_id']}: name servers "
                    "of one journal"
                )
                raise Internal(message, action=Action.FIX_THE_INPUT)
        self._common.journals[self.current] = journal

    def leave(self, server: str) -> None:
        """Makes the next server the current server, unless another operation has already left `server`."""
        if server != self.current:
            return
        following = (self._current + 1) % len(self._urls)
        if self._own is None:
            self._common.current = following
        else:
            self._own = following

    def follow(self, server: str, instances: Collection[str]) -> None:
        """Makes a server that holds the run's partition this handle's server: the next of the connection's servers that
        `instances` has, or else the next one, whose URL may have another name there. No other server gets the token."""
        if server != self.current:
            return
        count = len(self._urls)
        others = [(self._current + step) % count for step in range(1, count)] or [self._current]
        self._own = next((at for at in others if self._urls[at] in instances), others[0])

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
        self._refusals = 0
        """How many of the last tries were refused because the server is a mirror's, or does not hold the partition."""
        self._has_warned = False
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
        is_elsewhere = is_not_here(error.problem)
        if is_elsewhere:
            servers.follow(self.server, instances_of(error.problem))
        elif transient:
            servers.leave(self.server)
        # Requests each server once, also if another server did not answer.
        is_round = self._count > others
        # Such a refusal does not end the tries while another server, which may accept the request, does not answer.
        self._refusals = self._refusals + 1 if is_elsewhere or is_mirror(error.problem) else 0
        is_final = error.action is not Action.RETRY and (self._refusals == 0 or self._refusals > others)
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
            if is_elsewhere:
                error = not_here_anywhere(error)
            error.happened = Happened.UNKNOWN if self._maybe_sent else Happened.NOTHING
            raise error
        if is_elsewhere and not is_round:
            return 0.0
        if not self._has_warned:
            self._has_warned = True
            _LOGGER.warning("%s; trying again for %.0f s", visible(error.message), ends - time.monotonic())
        return self._pause


def not_here_anywhere(error: Error) -> Error:
    """Adds the remedy to the refusal of the last server, when no server of the connection holds the run's partition."""
    return error.copy(message=f"{error.message}; name one of them in `connect`, beside the other servers")


def _may_be_in_the_log(error: Error) -> bool:
    if isinstance(error, Unauthenticated | Forbidden) or is_mirror(error.problem) or is_not_here(error.problem):
        return False
    return error.kind not in _NOTHING_APPENDED and not isinstance(error.__context__, NoResponse)
