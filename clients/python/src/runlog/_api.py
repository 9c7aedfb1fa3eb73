"""The server's operations, request by request, with their retries (docs/protocol.md).

A query is sent again after any transient failure. An append is sent again with the same record ids, so that its records
are in the log once, whatever the outcome of the first try.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

from ._clock import SentAt
from ._json import Json, element_texts, encode, member_text
from ._wire import NoResponse, Request, Response, Sleep, Steps
from .config import Config
from .errors import (
    Error,
    Forbidden,
    Happened,
    Internal,
    NotFound,
    Overloaded,
    Stale,
    TooLarge,
    Unauthenticated,
    Unavailable,
    Usage,
    of_problem,
)

Object = dict[str, Any]

PAUSE_MIN = 0.05
PAUSE_MAX = 1.0
RETRY_AFTER_MAX = 86_400.0
"""The most seconds that a `Retry-After` header counts for: a float of any number of digits could be infinite."""
SLACK = 5.0
"""The client waits this much longer than the deadline that it sends to the server."""
RECOVERY_PAGE = 1000
_NOTHING_APPENDED = frozenset(("usage", "invalid", "too_large", "missing_content", "overloaded", "reconcile_required"))
_LATER = frozenset((408, 425, 429))


def segment(text: str) -> str:
    """A path segment, or a parameter's value."""
    return quote(text, safe="-._~")


def run_path(run_id: str) -> str:
    """Makes the path of a run. Raises `Usage` for ids that no path can contain."""
    if run_id in (".", "..") or not 1 <= len(run_id.encode()) <= 1024:
        raise Usage(f"a run id has 1 to 1024 bytes and is not . or ..: {run_id!r}")
    return f"/v1/runs/{segment(run_id)}"


def query(**terms: object) -> str:
    """Makes the query part of a path. Omits terms without a value."""
    pairs = [f"{name}={segment(_term(value))}" for name, value in terms.items() if value is not None]
    return "?" + "&".join(pairs)


def _term(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(response: Response, server: str) -> Any:
    """Parses an answer. Raises the server's error, or an error for an answer that does not come from the server."""
    try:
        body: Any = json.loads(response.body.decode())
    except (ValueError, RecursionError):
        body = None
    if 200 <= response.status < 300 and body is not None:
        return body
    if response.status >= 400 and isinstance(body, dict) and "kind" in body:
        raise of_problem(cast(Object, body))
    message = f"answer {response.status} from {server} is not one of Runlog"
    if response.status == 413:
        # A proxy did not pass the request on.
        raise TooLarge(message)
    cut_off = 200 <= response.status < 300
    if response.status >= 500 or response.status in _LATER or cut_off:
        raise Unavailable(message)
    raise Internal(message)


class Api:
    """Requests to one server."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._features: frozenset[str] | None = None

    def features(self) -> Steps[frozenset[str]]:
        """The server's features, requested once."""
        if self._features is None:
            journal: Object = yield from self.get("/v1/journal")
            self._features = frozenset(journal.get("features", ()))
        return self._features

    def _once(self, request: Request, text: bool = False) -> Steps[Any]:
        try:
            response = yield request
        except NoResponse as error:
            where = f"no answer from {self.config.url}: {error.why}; is `runlog serve` running there?"
            unavailable = Unavailable(where)
            unavailable.happened = Happened.UNKNOWN if error.sent else Happened.NOTHING
            raise unavailable from error
        try:
            answer = parse(response, self.config.url)
            return (answer, response.body.decode()) if text else answer
        except Overloaded as error:
            error.problem = {**error.problem, "retry_after": _seconds(response.headers.get("retry-after"))}
            raise

    def get(self, path: str, seconds: float | None = None, *, text: bool = False) -> Steps[Any]:
        """Sends a query, and repeats it until the deadline. With `text`, returns the answer and its text."""
        ends = time.monotonic() + (self.config.deadline if seconds is None else seconds)
        pause = PAUSE_MIN
        while True:
            left = max(0.1, ends - time.monotonic())
            asked = f"{path}{'&' if '?' in path else '?'}deadline_ms={int(left * 1000)}"
            try:
                return (yield from self._once(Request("GET", asked, timeout=left + SLACK), text))
            except (Unavailable, Overloaded, Stale) as error:
                pause = _next_pause(error, pause)
                if time.monotonic() + pause >= ends:
                    error.happened = Happened.NOTHING
                    raise
            yield Sleep(pause)

    def find(self, path: str, *, text: bool = False) -> Steps[Any]:
        """As `get`, with `None` for `not_found`."""
        try:
            return (yield from self.get(path, text=text))
        except NotFound:
            return None

    def append(
        self, run_id: str, records: Sequence[Mapping[str, Json]], *, read_back: bool = False
    ) -> Steps[list[Object]]:
        """Appends records, in order, and returns their outcomes.

        The outcomes have `sent_at`, the time of the first try. With `read_back`, if the server supports it, they also
        have the run's writer as of `latest`, and `asked_at`, the time of the last try. If the error's `happened` is
        `UNKNOWN`, some records may be in the log: send the same records again to find out.
        """
        consistency = "latest" if read_back and "read_back" in (yield from self.features()) else None
        one = len(records) == 1
        body = encode(records[0] if one else list(records)).encode()
        headers = {"content-type": "application/json"}
        if trace := self.config.trace():
            headers["traceparent"] = trace
        ends, pause, maybe_sent = time.monotonic() + self.config.deadline, PAUSE_MIN, False
        sent_at = SentAt()
        while True:
            left = max(0.1, ends - time.monotonic())
            path = f"{run_path(run_id)}/records{query(deadline_ms=int(left * 1000), consistency=consistency)}"
            times = {"sent_at": sent_at, **({"asked_at": SentAt()} if consistency else {})}
            try:
                answer = yield from self._once(Request("POST", path, body, headers, left + SLACK))
                outcomes = cast("list[Object]", [answer] if one else answer)
                if len(outcomes) != len(records) or any("outcome" not in outcome for outcome in outcomes):
                    raise Unavailable(f"the answer from {self.config.url} does not tell what became of the records")
                return [{**outcome, **times} for outcome in outcomes]
            except Error as error:
                sent = error.happened is Happened.UNKNOWN or _may_be_in_the_log(error)
                maybe_sent = maybe_sent or sent
                pause = _next_pause(error, pause)
                again = isinstance(error, Unavailable | Overloaded | Stale) and time.monotonic() + pause < ends
                if not again:
                    error.happened = Happened.UNKNOWN if maybe_sent else Happened.NOTHING
                    raise
            yield Sleep(pause)

    def copy(self, source: str, target: str, writer_id: str, epoch: int) -> Steps[Object]:
        """Copies a run's checkpoints, messages and host payloads into a run that has none. A repeated request
        continues."""
        body = encode({"from": source, "writer_id": writer_id, "writer_epoch": epoch}).encode()
        ends, pause = time.monotonic() + self.config.deadline, PAUSE_MIN
        while True:
            left = max(0.1, ends - time.monotonic())
            path = f"{run_path(target)}/copies{query(deadline_ms=int(left * 1000))}"
            request = Request("POST", path, body, {"content-type": "application/json"}, left + SLACK)
            try:
                return (yield from self._once(request))
            except (Unavailable, Overloaded, Stale) as error:
                pause = _next_pause(error, pause)
                if time.monotonic() + pause >= ends:
                    raise
            yield Sleep(pause)

    def run(self, run_id: str) -> Steps[Object | None]:
        """The run's head at `latest`."""
        return self.find(f"{run_path(run_id)}?consistency=latest")

    def outcome(self, run_id: str, record_id: str, position: Mapping[str, Any], seconds: float) -> Steps[Object]:
        """Reads back an acknowledged record: its outcome, and who writes the run now."""
        place = f"{position['partition']}:{position['offset']}:{position['index']}"
        terms = query(position=place, record_id=record_id, consistency="latest")
        return self.get(f"{run_path(run_id)}/outcome{terms}", seconds)

    def landed(self, run_id: str, record_id: str) -> Steps[Object | None]:
        """Reads the outcome of a record by its id; `None` if it is not in the log."""
        return self.find(f"{run_path(run_id)}/outcome{query(record_id=record_id, consistency='latest')}")

    def call(self, run_id: str, record_id: str) -> Steps[Object]:
        """A recorded call by its request."""
        return self.get(f"{run_path(run_id)}/calls/{segment(record_id)}?consistency=latest")

    def checkpoint(self, run_id: str, at_or_before: int | None = None) -> Steps[Object | None]:
        """The latest valid checkpoint, with its messages and their texts (`message_texts`)."""
        terms = query(consistency="latest", at_or_before=at_or_before)
        found = yield from self.find(f"{run_path(run_id)}/checkpoints/latest{terms}", text=True)
        if found is None:
            return None
        checkpoint, text = found
        return _with_texts(checkpoint, text)

    def recovery(self, run_id: str, *, from_start: bool, content: bool) -> Steps[Object | None]:
        """A recovery, its pages merged. Its checkpoint has the texts of its messages (`message_texts`)."""
        path = f"{run_path(run_id)}/recovery{query(full=True, from_start=from_start, content=content, limit=RECOVERY_PAGE)}"
        found = yield from self.find(path, text=True)
        if found is None:
            return None
        whole: Object = found[0]
        if whole["checkpoint"] is not None:
            whole["checkpoint"] = _with_texts(whole["checkpoint"], member_text(found[1], "checkpoint") or "{}")
        cursor = whole.get("next_cursor")
        while cursor:
            page: Object | None = yield from self.find(f"{path}&cursor={segment(cursor)}")
            if page is None:
                raise Internal(f"run {run_id}: a page of its recovery was not found")
            for part in ("completed", "pending", "approvals", "wakes", "messages", "write_backs", "missing_content"):
                whole[part].extend(page[part])
            cursor = page.get("next_cursor")
        return whole

    def checkpoint_by_id(self, run_id: str, checkpoint_id: str) -> Steps[Object | None]:
        """The valid checkpoint with an id, with its messages. The server has the feature `checkpoints`."""
        return self.find(f"{run_path(run_id)}/checkpoints/{segment(checkpoint_id)}{query(consistency='latest')}")

    def records(self, run_id: str, correlation: tuple[str, str]) -> Steps[list[Object]]:
        """The records with a correlation entry, in log order, each whole."""
        lines: list[Object] = []
        cursor: str | None = None
        while True:
            page, cursor = yield from self.records_page(run_id, correlation, cursor)
            lines.extend(page)
            if not cursor:
                return lines

    def records_page(
        self, run_id: str, correlation: tuple[str, str], cursor: str | None, limit: int = 1000, order: str | None = None
    ) -> Steps[tuple[list[Object], str | None]]:
        """A page of the records with a correlation entry, each whole, and the next page's cursor. `order` is `desc` for the
        newest first, if the server has the feature `order`."""
        terms = query(
            whole=True,
            limit=limit,
            correlation="=".join(correlation),
            bytes="base64" if "base64" in (yield from self.features()) else None,
            consistency="latest",
            order=order,
            cursor=cursor,
        )
        page: Object | None = yield from self.find(f"{run_path(run_id)}/records{terms}")
        return ([], None) if page is None else (page["records"], page.get("next_cursor"))

    def end_reason(self, run_id: str, status: str) -> Steps[str | None]:
        """Why a run ended as `status`; `None` if no lifecycle record says so."""
        terms = query(family="run", kind=status, whole=True, consistency="latest")
        page: Object | None = yield from self.find(f"{run_path(run_id)}/records{terms}")
        for line in page["records"] if page is not None else ():
            if line["payload_type"] == "run_lifecycle" and (record := line.get("record")) is not None:
                return str(record["payload"]["reason"])
        return None

    def runs(self, prefix: str) -> Steps[list[str]]:
        """The ids of the runs that begin with a prefix, in order."""
        path, found = f"/v1/runs{query(prefix=prefix, limit=1000, consistency='latest')}", list[str]()
        cursor: str | None = None
        while True:
            page: Object = yield from self.get(f"{path}&cursor={segment(cursor)}" if cursor else path)
            found.extend(run["run_id"] for run in page["runs"])
            cursor = page.get("next_cursor")
            if not cursor:
                return found


def _with_texts(checkpoint: Object, text: str) -> Object:
    """The list's hash covers the texts in the journal, which parsed values may not reproduce."""
    messages = member_text(text, "messages")
    return {**checkpoint, "message_texts": element_texts(messages) if messages else []}


def _may_be_in_the_log(error: Error) -> bool:
    if isinstance(error, Unauthenticated | Forbidden):
        return False
    return error.kind not in _NOTHING_APPENDED and not (
        isinstance(error, Unavailable) and isinstance(error.__cause__, NoResponse) and not error.__cause__.sent
    )


def _seconds(text: str | None) -> float | None:
    """The seconds of a `Retry-After` header, at most `RETRY_AFTER_MAX`. `None` for a date and for any other text."""
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), RETRY_AFTER_MAX)


def _next_pause(error: Error, pause: float) -> float:
    asked = error.problem.get("retry_after")
    # Only the header is trusted: the member of a problem document could be anything.
    if isinstance(error, Overloaded) and isinstance(asked, float):
        return max(PAUSE_MIN, asked)
    return min(pause * 2, PAUSE_MAX)
