"""Attempts of one effect: which errors end a call, which are retried, and the state after a time limit."""

from __future__ import annotations

import asyncio
import json

import pytest
from tenacity import AsyncRetrying, Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

import runlog
from conftest import command
from runlog import Happened, ReconcileRequired, TimedOut, Unavailable, Usage, sync


def policy(**options):
    return Retrying(**{"stop": stop_after_attempt(3), "wait": wait_fixed(0), **options})


def records(url, run_id, kind):
    shown = command(url, "show", run_id, "--raw", "--json").stdout
    return [of for line in shown.splitlines() if (of := json.loads(line)["payload"])["type"] == kind]


def test_a_call_with_a_key_is_retried_and_each_attempt_is_recorded_before_it_runs(url, run_id):
    seen = []

    @runlog.tool(key=lambda order: f"order-{order}", retry=policy(retry=retry_if_exception_type(ConnectionError)))
    def pay(call: runlog.Call, order: int) -> str:
        seen.append((call.attempt, call.idempotency_key, len(records(url, run_id, "tool_call_attempt"))))
        if call.attempt < 3:
            raise ConnectionResetError("lost")
        return "paid"

    with sync.connect(url) as rl, rl.run(run_id):
        assert pay(7) == pay(7) == "paid"
    assert seen == [(1, "order-7", 0), (2, "order-7", 1), (3, "order-7", 2)]
    assert [of["reason"] for of in records(url, run_id, "tool_call_attempt")] == [
        "retried after ConnectionResetError"
    ] * 2


async def test_a_policy_ends_with_the_call_pending_and_a_failure_is_final(url, run_id):
    attempts = []

    @runlog.tool(key=lambda order: f"order-{order}", retry=policy(), failed_on=LookupError)
    async def pay(call: runlog.Call, order: int) -> str:
        attempts.append(call.attempt)
        raise KeyError(order) if order == 8 else ConnectionResetError("lost")

    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(Unavailable, match="ConnectionResetError: lost; its key makes it safe") as gone:
            await pay(7)
        assert gone.value.happened is Happened.UNRECORDED and attempts == [1, 2, 3]
        with pytest.raises(runlog.Failed, match="KeyError"):
            await pay(8)
        assert attempts == [1, 2, 3, 1]
        with pytest.raises(Unavailable):
            await pay(7)
        assert attempts == [1, 2, 3, 1, 4, 5, 6]


async def test_a_call_that_is_not_safe_to_repeat_is_not_retried_and_says_why(url, run_id, caplog):
    @runlog.tool(key=lambda order: None, retry=policy())
    async def pay(call: runlog.Call, order: int) -> None:
        assert call.attempt == 1
        raise ConnectionResetError("lost")

    @runlog.tool(repeatable=True, retry=policy())
    async def find(call: runlog.Call, to: str) -> None:
        assert call.attempt == 1
        raise ConnectionResetError("lost")

    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            with pytest.raises(Usage, match=r"give it a key .* or repeatable=True"):
                await run.call("pay", {}, lambda call: pytest.fail("ran"), retry=policy())
            with pytest.raises(ReconcileRequired, match="ConnectionResetError: lost; find out"):
                await pay(7)
        async with rl.run(f"{run_id}-find"):
            with pytest.raises(ReconcileRequired, match="lacks the feature `bases`"):
                await find("LHR")
    assert records(url, run_id, "tool_call_attempt") == []
    assert caplog.text.count("find is repeatable, but the server") == 1 and "Give the tool a key" in caplog.text


def test_failed_on_that_covers_lost_answers_is_warned_of_when_decorating(caplog):
    def warned(**options):
        caplog.clear()
        runlog.tool(name="pay", **options)(lambda call: None)
        return caplog.text

    told = warned(failed_on=Exception)
    assert "failed_on covers TimeoutError, ConnectionResetError, " in told and "ReadTimeout" in told
    assert "ConnectionResetError" in warned(failed_on=(LookupError, OSError), unknown_on=TimeoutError)
    for right in (LookupError, ConnectionRefusedError, lambda error: True, runlog.Failed):
        assert warned(failed_on=right) == ""
    assert warned(failed_on=Exception, unknown_on=lambda error: True) == ""


async def test_a_repeatable_tool_is_retried_where_the_journal_records_that_it_is(url_of_bases, run_id):
    @runlog.tool(repeatable=True, retry=policy())
    async def find(call: runlog.Call, to: str) -> str:
        if call.attempt < 3:
            raise ConnectionResetError("lost")
        return "HAT136"

    async with runlog.connect(url_of_bases) as rl, rl.run(run_id):
        assert await find("LHR") == "HAT136"


async def test_an_effect_that_its_time_limit_cut_is_unknown_and_not_failed(url, run_id):
    began = asyncio.Event()

    @runlog.tool(timeout=0.05, failed_on=TimeoutError)
    async def pay(call: runlog.Call, order: int) -> str:
        began.set()
        await asyncio.Event().wait()
        return "paid"

    @runlog.tool(timeout=60, failed_on=TimeoutError)
    async def refuse(call: runlog.Call) -> str:
        raise TimeoutError("no connection")

    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(runlog.Failed, match="no connection"):
            await refuse()
        with pytest.raises(ReconcileRequired, match=r"cut after 0\.05 s") as cut:
            await pay(7)
        assert began.is_set() and isinstance(cut.value.__cause__, TimedOut)
    assert records(url, run_id, "tool_call_failed")[0]["error_message"] == "no connection"
    [pending] = json.loads(command(url, "recover", run_id, "--json").stdout)["pending"]
    assert pending["tool_name"] == "pay"


def test_failures_are_recognised_by_a_function_and_an_error_in_it_leaves_the_call_unknown(url, run_id):
    class Refused(Exception):
        def __init__(self, status):
            self.status = status

    def effect(call):
        raise Refused({"pay": 402, "mail": 503, "fax": None}[tools[-1]])

    ends = runlog.Ends(failed_on=lambda error: error.status < 500)
    tools = []
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for tool, expected in (("pay", runlog.Failed), ("mail", Unavailable), ("fax", Unavailable)):
            tools.append(tool)
            with pytest.raises(expected):
                run.call(tool, {}, effect, ends=ends, key=tool)


def test_what_cannot_be_called_recognised_or_cut_is_refused_before_anything_is_recorded(url, run_id):
    for wrong in ([LookupError], "LookupError", (LookupError, "x"), int):
        with pytest.raises(Usage, match="failed_on is a class"):
            runlog.tool(failed_on=wrong)
    for options, says in (
        ({"retry": policy()}, "give it a key"),
        ({"retry": Retrying(), "repeatable": True}, "never ends"),
        ({"retry": AsyncRetrying(stop=stop_after_attempt(2)), "repeatable": True}, "tenacity.Retrying"),
        ({"timeout": 1.0}, "plain function"),
    ):
        with pytest.raises(Usage, match=says):
            runlog.tool(name="pay", **options)(lambda call: None)
    with sync.connect(url) as rl, rl.run(run_id) as run:
        for effect in (lambda: None, lambda call, more: None, 7):
            with pytest.raises(Usage, match="the effect of pay"):
                run.call("pay", {}, effect)
        assert run.call("pay", {}, lambda call: "paid").result == "paid"
    assert len(records(url, run_id, "tool_call_requested")) == 1
