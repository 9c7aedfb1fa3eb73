"""The server's operations, request by request, with their retries (docs/protocol.md).

A query is sent again after any transient failure. An append is sent again with the same record ids, so that its records
are in the log once, even if the first try already appended them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, cast
from urllib.parse import quote

from ._checks import check_text
from ._clock import SentAt
from ._json import Json, element_texts, encode, member_text
from ._servers import Servers, Tries
from ._wire import NoResponse, Request, Response, Sleep, Steps
from .config import Config
from .errors import (
    Action,
    Error,
    Happened,
    Internal,
    NotFound,
    Overloaded,
    TooLarge,
    Unavailable,
    Usage,
    of_problem,
)  # fmt: skip

T = TypeVar("T")
Object = dict[str, Any]

RETRY_AFTER_MAX = 86_400.0
"""The maximum number of seconds that a `Retry-After` header counts for: a float of any number of digits could be infinite."""
RECOVERY_PAGE = 1000
REQUESTS_PAGE = 100
NO_RECORDS = "0" * 64
"""The hash of a run without records."""
_LATER = frozenset((408, 425, 429))
_AFTER_PENDING = ("completed", "approvals", "wakes", "messages", "write_backs")
"""The lists of a recovery after `pending`, in the order of its pages."""


def _missing_page(run_id: str) -> Internal:
    return Internal(f"run {run_id}: a page of its recovery was not found")


def check_complete(page: Object, items: str) -> None:
    """Raises `Unavailable` for a page that lacks partitions: it must not look complete."""
    if lacking := page.get("unavailable_partitions"):
        raise Unavailable(f"partitions {lacking} cannot be read now, and may have more {items}")


def segment(text: str) -> str:
    """A path segment, or a parameter's value."""
    check_text("a part of the request", text)
    return quote(text, safe="-._~")


def run_path(run_id: str) -> str:
    """Makes the path of a run. Raises `Usage` for ids that no path can contain."""
    check_text("a run id", run_id)
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
    raise Internal(f"{message}; check the server's URL", action=Action.FIX_THE_INPUT)


class Api:
    """Requests to the servers of a connection."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.servers = Servers(config)

    def for_run(self) -> Api:
        """The same for one run: it remembers the server that holds the run's partition."""
        own = copy.copy(self)
        own.servers = self.servers.for_run()
        return own

    def features(self) -> Steps[frozenset[str]]:
        """The current server's features, requested once."""
        journal = self.servers.journal
        if journal is None:
            journal = yield from self._tried(self._identified, self.config.deadline)
        return frozenset(journal.get("features", ()))

    def _identified(self, seconds: float) -> Steps[Object]:
        """The current server's answer about its journal, in one try."""
        if self.servers.journal is None:
            request = self.servers.request("GET", "/v1/journal", seconds)
            try:
                self.servers.identify((yield from self._answer(request)))
            except Error as error:
                error.happened = Happened.NOTHING
                raise
        journal = self.servers.journal
        assert journal is not None
        return journal

    def _tried(self, once: Callable[[float], Steps[T]], seconds: float) -> Steps[T]:
        """Tries until there is an answer, a final error, or the deadline. `once` gets the seconds of a try."""
        tries = Tries(self.servers, seconds)
        while True:
            left = tries.seconds()
            try:
                if self.servers.must_be_identified:
                    yield from self._identified(left)
                return (yield from once(left))
            except Error as error:
                pause = tries.failed(error)
            yield Sleep(pause)

    def _answer(self, request: Request, text: bool = False) -> Steps[Any]:
        try:
            response = yield request
        except NoResponse as error:
            raise self.servers.no_answer(request.server, error) from None
        try:
            answer = parse(response, request.server)
        except Error as error:
            self.servers.answered = self.servers.answered or bool(error.problem)
            if isinstance(error, Overloaded):
                error.problem = {**error.problem, "retry_after": _seconds(response.headers.get("retry-after"))}
            raise
        self.servers.answered = True
        return (answer, response.body.decode()) if text else answer

    def get(self, path: str, seconds: float | None = None, *, text: bool = False) -> Steps[Any]:
        """Sends a query, and repeats it until the deadline. With `text`, returns the answer and its text."""

        def once(left: float) -> Steps[Any]:
            return self._answer(self.servers.request("GET", path, left), text)

        try:
            return (yield from self._tried(once, self.config.deadline if seconds is None else seconds))
        except Error as error:
            error.happened = Happened.NOTHING
            raise

    def _get_at(self, position: Mapping[str, Any], path: Callable[[str], str], seconds: float) -> Steps[Any]:
        """Sends a query about a position, and repeats it until the deadline. `path` gets `@LOG` if the position names its log and
        the server knows logs; the server then refuses the position of another log. An address may lead to several servers, and
        an older one gets the query without the log."""
        log = position.get("log")

        def once(left: float) -> Steps[Any]:
            if log and "logs" in (yield from self._identified(left)).get("features", ()):
                try:
                    return (yield from self._answer(self.servers.request("GET", path(f"@{log}"), left)))
                except Usage:
                    pass
            return (yield from self._answer(self.servers.request("GET", path(""), left)))

        try:
            return (yield from self._tried(once, seconds))
        except Error as error:
            error.happened = Happened.NOTHING
            raise

    def find(self, path: str, *, text: bool = False) -> Steps[Any]:
        """As `get`, with `None` for `not_found`."""
        try:
            return (yield from self.get(path, text=text))
        except NotFound:
            return None

    def post(self, path: str, content: Mapping[str, Json]) -> Steps[Object]:
        """Posts JSON that may arrive twice. Repeats the same bytes until the deadline."""
        body, headers = encode(content).encode(), self._headers()

        def once(left: float) -> Steps[Object]:
            return self._answer(self.servers.request("POST", path, left, body, **headers))

        return self._tried(once, self.config.deadline)

    def _headers(self) -> dict[str, str]:
        trace = self.config.trace()
        return {"content-type": "application/json", **({"traceparent": trace} if trace else {})}

    def append(
        self, run_id: str, records: Sequence[Mapping[str, Json]], *, read_back: bool = False
    ) -> Steps[list[Object]]:
        """Appends records, in order, and returns their outcomes.

        The outcomes have `sent_at`, the time of the first try. With `read_back`, if the server supports it, they also
        have the run's writer as of `latest`, and `asked_at`, the time of the last try. If the error's `happened` is
        `UNKNOWN`, some records may be in the log: send the same records again to find out.
        """
        one = len(records) == 1
        body = encode(records[0] if one else list(records)).encode()
        headers, path, sent_at = self._headers(), f"{run_path(run_id)}/records", SentAt()

        def once(left: float) -> Steps[list[Object]]:
            # The next try may ask another server, which may be older.
            has_read_back = read_back and "read_back" in (yield from self._identified(left)).get("features", ())
            terms = query(consistency="latest") if has_read_back else ""
            times = {"sent_at": sent_at, **({"asked_at": SentAt()} if has_read_back else {})}
            answer = yield from self._answer(self.servers.request("POST", path + terms, left, body, **headers))
            outcomes = cast("list[Object]", [answer] if one else answer)
            if len(outcomes) != len(records) or any("outcome" not in outcome for outcome in outcomes):
                raise Unavailable(f"the answer from {self.servers.current} does not have an outcome for each record")
            return [{**outcome, **times} for outcome in outcomes]

        return (yield from self._tried(once, self.config.deadline))

    def claim(self, run_id: str, claim: Mapping[str, Json]) -> Steps[Object]:
        """Claims a run, with `only_if` only if it still has that hash (`NO_RECORDS` for a new run). The server finds a claim
        that is sent again by its `record_id`.

        Raises `ClaimLost` or `Conflict` if another claim or another hash came first. After any other error the claim may be
        in the log: send the same claim again to find out."""
        return self.post(f"{run_path(run_id)}/claims", claim)

    def copy(self, source: str, target: str, writer_id: str, epoch: int) -> Steps[Object]:
        """Copies a run's checkpoints, messages and host payloads into a run that has none. A repeated request
        continues."""
        return self.post(f"{run_path(target)}/copies", {"from": source, "writer_id": writer_id, "writer_epoch": epoch})

    def run(self, run_id: str) -> Steps[Object | None]:
        """The run's head at `latest`."""
        return self.find(f"{run_path(run_id)}?consistency=latest")

    def outcome(self, run_id: str, record_id: str, position: Mapping[str, Any], seconds: float) -> Steps[Object]:
        """Reads back an acknowledged record: its outcome, and who writes the run now."""
        place = f"{position['partition']}:{position['offset']}:{position['index']}"

        def path(log: str) -> str:
            terms = query(position=place + log, record_id=record_id, consistency="latest")
            return f"{run_path(run_id)}/outcome{terms}"

        return self._get_at(position, path, seconds)

    def landed(self, run_id: str, record_id: str) -> Steps[Object | None]:
        """Reads the outcome of a record by its id; `None` if it is not in the log."""
        return self.find(f"{run_path(run_id)}/outcome{query(record_id=record_id, consistency='latest')}")

    def call(self, run_id: str, record_id: str) -> Steps[Object]:
        """A recorded call by its request."""
        return self.get(f"{run_path(run_id)}/calls/{segment(record_id)}?consistency=latest")

    def call_with_key(self, run_id: str, tool: str, key: str, at_least: Object) -> Steps[Object | None]:
        """The first call of a tool with an idempotency key, with its `request_record_id`, at least as of a position; `None`
        if the run has none. The server has the feature `call_keys`.

        Not at `latest`: a server that reads from a deposed leader may not know the call. As of a position it raises `Stale`."""
        return self._find_at(at_least, f"{run_path(run_id)}/lookup{query(tool=tool, key=key)}")

    def _find_at(self, at_least: Object | None, path: str) -> Steps[Object | None]:
        """As `find`, at least as of a position."""
        if at_least is None:
            return (yield from self.find(path))
        consistency = segment(f"at-least={at_least['partition']}:{at_least['offset']}")
        try:
            return (
                yield from self._get_at(
                    at_least, lambda log: f"{path}&consistency={consistency}{segment(log)}", self.config.deadline
                )
            )
        except NotFound:
            return None

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
                raise _missing_page(run_id)
            for part in ("pending", *_AFTER_PENDING, "missing_content"):
                whole[part].extend(page[part])
            cursor = page.get("next_cursor")
        return whole

    def pending(self, run_id: str, at_least: Object | None = None) -> Steps[Object | None]:
        """A recovery without a checkpoint, with all pending effects: at `latest`, or at least as of a position. They come first, so
        few pages are read, however many calls the run has."""
        path = f"{run_path(run_id)}/recovery{query(from_start=True, content=False, limit=1)}"
        whole: Object | None = yield from self._find_at(at_least, path)
        page = whole
        while whole and page and page.get("next_cursor") and not any(page[part] for part in _AFTER_PENDING):
            page = yield from self._find_at(at_least, f"{path}&cursor={segment(page['next_cursor'])}")
            if page is None:
                # A call that is missing here would count as decided.
                raise _missing_page(run_id)
            whole["pending"].extend(page["pending"])
        return whole

    def resume_point(self, run_id: str, *, full: bool, texts: bool = False) -> Steps[Object | None]:
        """The first page of a recovery, with at most one call: the run's head and its latest valid checkpoint, with `full`
        also its messages, with `texts` their texts (`message_texts`)."""
        path = f"{run_path(run_id)}/recovery{query(full=full or texts, content=False, limit=1, consistency='latest')}"
        if not texts:
            return (yield from self.find(path))
        found = yield from self.find(path, text=True)
        if found is None or found[0]["checkpoint"] is None:
            return found and found[0]
        return {
            **found[0],
            "checkpoint": _with_texts(found[0]["checkpoint"], member_text(found[1], "checkpoint") or "{}"),
        }

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

    def newest_records(
        self, run_id: str, limit: int, cursor: str | None = None
    ) -> Steps[tuple[list[Object], str | None]]:
        """A page of the run's records, newest first, and the next page's cursor. The server has the feature `order`."""
        terms = query(order="desc", limit=limit, consistency="latest", cursor=cursor)
        page: Object | None = yield from self.find(f"{run_path(run_id)}/records{terms}")
        return ([], None) if page is None else (page["records"], page.get("next_cursor"))

    def runs_with(self, correlation: tuple[str, str]) -> Steps[set[str]]:
        """The runs with a record that has a correlation entry. Raises `Unavailable` rather than leave out a partition."""
        terms = query(correlation="=".join(correlation), limit=1000, consistency="latest")
        found, cursor = set[str](), None
        while True:
            page: Object = yield from self.get(f"/v1/events{terms}" + (f"&cursor={segment(cursor)}" if cursor else ""))
            check_complete(page, "runs")
            found |= {event["run_id"] for event in page["events"]}
            cursor = page.get("next_cursor")
            if not cursor:
                return found

    def repeatable_calls(self, run_id: str, calls: Collection[str]) -> Steps[set[str]]:
        """Returns the calls with the fact `repeatable`. Reads the run's newest requests until it has seen all `calls`."""
        left, found = set(calls), set[str]()
        terms: Object = {"family": "tool_call", "kind": "requested", "whole": True, "order": "desc"}
        terms |= {"limit": REQUESTS_PAGE, "consistency": "latest"}
        cursor: str | None = None
        # A server without the order records no facts of a request.
        while left and "order" in (yield from self.features()):
            page: Object = (yield from self.find(f"{run_path(run_id)}/records{query(**terms, cursor=cursor)}")) or {}
            for line in page.get("records", ()):
                record: Object = line.get("record") or {}
                facts: Object = record.get("facts") or {}
                if record.get("record_id") in left and facts.get("repeatable"):
                    found.add(record["record_id"])
                left.discard(str(record.get("record_id")))
            cursor = page.get("next_cursor")
            if not cursor:
                break
        return found

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


def _seconds(text: str | None) -> float | None:
    """The seconds of a `Retry-After` header, at most `RETRY_AFTER_MAX`. `None` for a date and for any other text."""
    if text is None or not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), RETRY_AFTER_MAX)
