"""Answers that do not come from a Runlog server, or not as it sends them: each ends in an error of the client's own."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from runlog import _http
from runlog._api import RETRY_AFTER_MAX, Api, parse
from runlog._http import AsyncHttp, SyncHttp
from runlog._wire import NoResponse, Request, Response, Sleep
from runlog.config import Config
from runlog.errors import Action, Error, Internal, Overloaded, Unavailable, of_problem

SERVER = "http://server"
BUSY = json.dumps({"kind": "overloaded", "status": 429, "detail": "busy", "retry_after": "soon"}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"n":' + b"9" * 5000 + b"}",
        '{"a":1}'.encode("utf-16"),
        b"\xff\xfe",
        b'{"a":"\xff"}',
        b"",
    ],
)
def test_a_body_that_is_no_json_is_no_answer(body: bytes) -> None:
    with pytest.raises(Unavailable):
        parse(Response(200, {}, body), SERVER)
    with pytest.raises(Internal, match="check the server's URL") as refused:
        parse(Response(404, {}, body), SERVER)
    assert refused.value.action is Action.FIX_THE_INPUT


@pytest.mark.parametrize("member", ["abc", [], {}, None, 1e400, True, "401", -1, 10**30])
def test_a_problem_with_any_members_is_an_error_of_the_client(member: object) -> None:
    problem = dict.fromkeys(("kind", "status", "detail", "title", "retry_after", "record_id"), member)
    assert isinstance(of_problem(problem), Error)


@pytest.mark.parametrize(
    "header", ["9" * 400, "18446744073709551615", "\u00b2", "\u0663", "1e3", "-1", "+1", "NaN", "", "soon"]
)
def test_a_pause_of_any_length_ends_in_an_error_or_in_a_short_wait(header: str) -> None:
    steps = Api(Config(SERVER, deadline=2.0)).get("/v1/journal")
    next(steps)
    try:
        step = steps.send(Response(429, {"retry-after": header}, BUSY))
    except Overloaded as error:
        assert error.problem["retry_after"] == RETRY_AFTER_MAX
    else:
        assert isinstance(step, Sleep) and step.seconds <= 1.0


class Long(http.server.BaseHTTPRequestHandler):
    """Answers with 100 bytes."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ok" else 500)
        self.end_headers()
        self.wfile.write(b"x" * 100)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


@pytest.fixture
def long_answers() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Long) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["/ok", "/error"])
def test_an_answer_over_the_bound_is_not_read(long_answers: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config, request = Config(long_answers), Request("GET", path)

    async def received() -> bytes:
        transport = AsyncHttp(config)
        try:
            return (await transport.send(request)).body
        finally:
            await transport.close()

    def streamed() -> bytes:
        head = next(SyncHttp(config).stream(Request("GET", "/error")))
        assert isinstance(head, Response)
        return head.body

    reads = [lambda: SyncHttp(config).send(request).body, lambda: asyncio.run(received()), streamed]
    monkeypatch.setattr(_http, "ANSWER_BYTES_MAX", 100)
    assert [len(read()) for read in reads] == [100, 100, 100]
    monkeypatch.setattr(_http, "ANSWER_BYTES_MAX", 99)
    for read in reads:
        with pytest.raises(NoResponse, match="more than 99 bytes") as refused:
            read()
        assert refused.value.sent and "URL" in str(refused.value.remedy)
