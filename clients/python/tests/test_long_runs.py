"""Runs with many calls: which requests find a call that the last checkpoint covers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import runlog
from faults import AsyncFaults, SyncFaults
from runlog import _api as api
from runlog import _covered as covered
from runlog import sync
from runlog._wire import Request, Response

CALLS = 12


def never(call):
    pytest.fail("ran")


async def never_async(call):
    pytest.fail("ran")


def pay(call):
    return "paid"


class Requests:
    """Notes the kinds of requests, and changes the answers of an older server."""

    def __init__(self, *, features: bool = True, lookups: bool = True) -> None:
        self.features, self.lookups = features, lookups
        self.lists, self.lookups_made = 0, 0
        self.lookup_paths: list[str] = []

    def asked(self, request: Request) -> Request:
        self.lists += (
            "/recovery?" in request.path and "from_start=true" in request.path and "limit=1&" not in request.path
        )
        if "/lookup?" not in request.path:
            return request
        self.lookups_made += 1
        self.lookup_paths.append(request.path)
        # A server that does not know `key` misses the arguments.
        return request if self.lookups else replace(request, path=request.path.replace("&key=", "&of="))

    def answered(self, request: Request, response: Response) -> Response:
        if not request.path.startswith("/v1/journal?") or self.features:
            return response
        journal = json.loads(response.body)
        journal["features"].remove("call_keys")
        return replace(response, body=json.dumps(journal).encode())


def connect(url: str, requests: Requests) -> sync.Runlog:
    class Transport(SyncFaults):
        def send(self, request: Request) -> Response:
            return requests.answered(request, super().send(requests.asked(request)))

    config = runlog.Config(url)
    return sync.Runlog(config, Transport(config))


def connect_async(url: str, requests: Requests) -> runlog.Runlog:
    class Transport(AsyncFaults):
        async def send(self, request: Request) -> Response:
            return requests.answered(request, await super().send(requests.asked(request)))

    config = runlog.Config(url)
    return runlog.Runlog(config, Transport(config))


@pytest.fixture
def long_run(url, run_id, monkeypatch):
    """A run whose checkpoint covers more calls than a page has."""
    monkeypatch.setattr(api, "RECOVERY_PAGE", 4)
    monkeypatch.setattr(covered, "LISTED_MAX", 4)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for n in range(CALLS):
            run.call("pay", {"n": n}, pay, key=f"pay {n}")
        run.call("tick", {}, pay)
        run.checkpoint([{"role": "user", "content": "pay"}])
    return run_id


def test_a_call_with_a_key_is_looked_up_and_the_run_is_not_read(url, long_run):
    requests = Requests()
    with connect(url, requests) as rl, rl.run(long_run) as run:
        assert run.recovery.messages and requests.lookups_made == 0
        assert [run.call("pay", {"n": n}, never, key=f"pay {n}").result for n in (7, 3)] == ["paid", "paid"]
        assert run.call("pay", {"n": 7}, never, key="pay 7").recorded
        with pytest.raises(runlog.Conflict, match="other arguments"):
            run.call("pay", {"n": 0}, never, key="pay 5")
        # A key is its tool's.
        assert not run.call("refund", {"n": 7}, pay, key="pay 7").recorded
        assert run.call("refund", {"n": 7}, never, key="pay 7").recorded
        assert not run.call("tick", {}, pay).recorded
        assert (requests.lists, requests.lookups_made) == (0, 4)
        run.checkpoint([{"role": "user", "content": "paid"}])


def test_a_lookup_includes_all_records_up_to_the_claim(url, long_run):
    requests = Requests()
    with connect(url, requests) as rl, rl.run(long_run) as run:
        assert run.recovery.messages
        run.call("pay", {"n": 7}, never, key="pay 7")
        run.call("pay", {"n": CALLS}, pay, key=f"pay {CALLS}")
        # At `latest` a server that reads from a deposed leader may not know the call, and its effect would run again.
        at = run._session.replay.position
        for path in requests.lookup_paths:
            assert f"consistency=at-least%3D{at['partition']}%3A{at['offset']}" in path


def test_a_handle_that_lost_its_run_takes_no_answer_of_the_next_process_by_key(url, long_run):
    with connect(url, Requests()) as rl, sync.connect(url) as other:
        lost = rl.open(long_run)
        assert lost.recovery.messages
        other.open(long_run).call("pay", {"n": CALLS}, pay, key=f"pay {CALLS}")
        with pytest.raises((runlog.Fenced, runlog.ClaimLost)):
            lost.call("pay", {"n": CALLS}, never, key=f"pay {CALLS}")


async def test_a_call_with_a_key_is_looked_up_in_async_runs(url, long_run):
    requests = Requests()
    async with connect_async(url, requests) as rl, rl.run(long_run) as run:
        assert (await run.call("pay", {"n": 7}, never_async, key="pay 7")).recorded
        assert (requests.lists, requests.lookups_made) == (0, 1)


@pytest.mark.parametrize(
    ("requests", "key", "lookups"),
    [
        (Requests(features=False), "pay 7", 0),
        # The server that listed the feature is gone, and an older server answers: with the log of the position, and without it.
        (Requests(lookups=False), "pay 7", 2),
        # A URL has no place for it.
        (Requests(), "k" * (covered.KEY_BYTES_MAX + 1), 0),
    ],
)
def test_a_key_that_no_server_looks_up_is_found_in_the_whole_run(url, long_run, requests, key, lookups):
    known = key.startswith("pay")
    with connect(url, requests) as rl, rl.run(long_run) as run:
        assert run.recovery.messages
        assert run.call("pay", {"n": 7}, never if known else pay, key=key).recorded is known
        assert run.call("pay", {"n": 3}, never, key="pay 3").recorded
        assert (requests.lists > 1, requests.lookups_made) == (True, lookups)


def test_a_process_that_begins_at_the_start_reads_the_run_once_it_calls_without_a_key(url, long_run):
    requests = Requests()
    with connect(url, requests) as rl, rl.run(long_run) as run:
        assert run.call("pay", {"n": 7}, never, key="pay 7").recorded and requests.lists == 0
        assert run.call("tick", {}, never).recorded and requests.lists > 1
        assert run.call("pay", {"n": 3}, never, key="pay 3").recorded and requests.lookups_made == 1
        assert not run.call("tick", {}, pay).recorded


def test_opening_a_run_that_ended_reads_no_call(url, long_run, monkeypatch):
    monkeypatch.setattr("runlog._session.Session.lists_keys", False)
    requests = Requests()
    with connect(url, requests) as rl:
        rl.open(long_run).end()
        run = rl.open(long_run)
        assert run.call("pay", {"n": 7}, never, key="pay 7").recorded
        with pytest.raises(runlog.Conflict, match="is completed"):
            run.call("pay", {"n": CALLS}, never, key=f"pay {CALLS}")
        assert (requests.lists, requests.lookups_made) == (0, 2)
        assert run.call("tick", {}, never).recorded and requests.lists > 1


class Pages(api.Api):
    """A server's pages of a recovery."""

    def __init__(self, *pages: object) -> None:
        self.pages = list(pages)

    def find(self, path, text=False):
        return self.pages.pop(0)
        yield  # It is a generator, as of the client.


def page(cursor, pending=(), **lists):
    others = dict.fromkeys(("completed", "approvals", "wakes", "messages", "write_backs"), ())
    return {"pending": list(pending), "next_cursor": cursor, **others, **lists}


def driven(steps):
    with pytest.raises(StopIteration) as done:
        next(steps)
    return done.value.value


@pytest.mark.parametrize("after", ["completed", "approvals", "wakes", "messages", "write_backs"])
def test_all_pending_effects_are_read_and_only_one_page_of_the_lists_after_them(after):
    pages = Pages(page("a", "xy"), page("b", "z", **{after: [1]}), page(None, **{after: [2]}))
    assert driven(pages.pending("r"))["pending"] == ["x", "y", "z"]
    assert len(pages.pages) == 1


def test_a_missing_page_of_pending_effects_is_an_error_because_their_calls_would_count_as_decided():
    with pytest.raises(runlog.Internal):
        driven(Pages(page("a", "x"), None).pending("r"))
