"""A tail: the records of a run, or of all runs, as they are applied. Without input or output.

request ─▶ parts of the stream ─▶ lines, each with its cursor
   └────── the stream broke off: request again after the last cursor, on the next server
"""

from __future__ import annotations

import json

from ._api import Api, Object, parse, query, run_path
from ._servers import not_here_anywhere
from ._wire import NoResponse, Request, Response
from .errors import Action, Error, Internal, Overloaded, Stale, Unavailable, instances_of, is_not_here, of_problem

RECONNECTS_MAX = 10
"""Tries to connect again without a received line, before the tail gives up."""
PAUSE_MIN = 0.25
PAUSE_MAX = 10.0
SILENCE_MAX = 45.0
"""How long a stream may be silent, seconds. A server sends a comment each 15 s."""
EVENT_BYTES_MAX = 256 << 20
"""No line of a server is longer: a record has at most 64 MiB, escaped."""


class Tail:
    """The state of a tail. Its owner sends the requests and passes the parts of the stream to it."""

    def __init__(self, api: Api, run_id: str | None, start: str, *, until_end: bool, raw: bool) -> None:
        self.api = api if run_id is None else api.for_run()
        """For other requests to the server of the tail."""
        self._servers, self._cursor = self.api.servers, start
        self._path = "/v1/tail" if run_id is None else f"{run_path(run_id)}/tail"
        self._raw, self._server = raw, ""
        self.until_end = until_end
        """Whether the tail ends after the records that exist."""
        self._refusals = 0
        """How many of the last requests were refused because the server does not hold the run's partition."""
        self._failures, self._rest, self._event, self._data = 0, bytearray(), "", list[str]()

    def request(self) -> Request:
        """The request that continues after the last line."""
        self._rest, self._event, self._data = bytearray(), "", []
        self._server = self._servers.current
        path = self._path + query(**{"from": self._cursor}, until_end=self.until_end, raw=self._raw)
        headers = {"accept": "text/event-stream"}
        return Request("GET", path, None, headers, SILENCE_MAX, server=self._server)

    def feed(self, part: Response | bytes) -> list[Object]:
        """Processes a part of the stream. Returns the lines that it completes. Raises the server's error."""
        if isinstance(part, Response):
            if part.status != 200:
                parse(part, self._server)
                raise Internal(f"answer {part.status} from {self._server} is no stream")
            return []
        lines: list[Object] = []
        # Split at line feeds alone: a record may have other line ends of Unicode.
        *whole, rest = (bytes(self._rest) + part).split(b"\n") if b"\n" in part else (self._rest + part,)
        for line in whole:
            if (item := self._line(line.decode().removesuffix("\r"))) is not None:
                lines.append(item)
        self._rest = bytearray(rest)
        if len(self._rest) > EVENT_BYTES_MAX:
            raise Internal(f"a line of the stream from {self._server} has more than {EVENT_BYTES_MAX} bytes")
        return lines

    def _line(self, line: str) -> Object | None:
        name, _, value = line.partition(":")
        if name == "event":
            self._event = value.strip()
        elif name == "data":
            self._data.append(value.removeprefix(" "))
        if line or not self._data:
            return None
        event, data = self._event, "\n".join(self._data)
        self._event, self._data = "", []
        try:
            item: Object = json.loads(data)
        except ValueError as error:
            raise Internal(f"an event of the stream from {self._server} cannot be read") from error
        if event == "error":
            raise of_problem(item)
        self._cursor, self._failures = item["cursor"], 0
        return item

    def lost(self, error: Error | NoResponse | None) -> float:
        """Returns the pause before the next request. Raises the error if trying again does not help."""
        if isinstance(error, NoResponse):
            error = self._servers.no_answer(self._server, error)
        lost = error or Unavailable(f"{self._server} ended the stream")
        if is_not_here(lost.problem):
            self._refusals += 1
            if self._refusals >= len(self._servers.config.servers):
                raise not_here_anywhere(lost)
            self._servers.follow(self._server, instances_of(lost.problem))
            return 0.0
        if not isinstance(lost, Unavailable | Overloaded | Stale) or lost.action is not Action.RETRY:
            raise lost
        self._servers.leave(self._server)
        self._failures, self._refusals = self._failures + 1, 0
        if self._failures > RECONNECTS_MAX:
            raise lost.copy(message=f"{lost.message}; continue with start={self._cursor!r}")
        return min(PAUSE_MIN * 2 ** (self._failures - 1), PAUSE_MAX)
