"""Answers that do not come from a Runlog server, or not as it sends them: each ends in an error of the client's own."""

from __future__ import annotations

import json

import pytest

from runlog._api import RETRY_AFTER_MAX, Api, parse
from runlog._wire import Response, Sleep
from runlog.config import Config
from runlog.errors import Error, Internal, Overloaded, Unavailable, of_problem

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
    with pytest.raises(Internal):
        parse(Response(404, {}, body), SERVER)


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
