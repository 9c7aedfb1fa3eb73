"""Repeats of a call that may have happened: an interruption or a failure of the repeat says nothing about the earlier attempt."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from tenacity import Retrying, stop_after_attempt, wait_fixed

import runlog
from conftest import command
from faults import AsyncFaults, Interrupted, SyncFaults, interrupt, lost, refused
from runlog import Config, Error, Happened, ReconcileRequired, Unavailable, sync
from runlog.aio import Runlog
from runlog.sync import Runlog as SyncRunlog

SAFE = [{"key": "k"}, {"repeatable": True}]
SAFE_NAMES = ["with a key", "repeatable"]
NO_RETRY = 0.04
"""Less than the pause before a retry."""


def set_deadline(rl, seconds):
    object.__setattr__(rl.config, "deadline", seconds)


def records(url, run_id, kind):
    shown = command(url, "show", run_id, "--raw", "--json").stdout
    return [of for line in shown.splitlines() if (of := json.loads(line)["payload"])["type"] == kind]


def decisions(url, run_id):
    return [(of["decision"], of["who"]) for of in records(url, run_id, "effect_resolution")]


def die(call):
    """An effect that may have happened."""
    raise Interrupted


def retried(**options):
    return {**options, "retry": Retrying(stop=stop_after_attempt(2), wait=wait_fixed(0))}


@pytest.mark.parametrize("options", SAFE, ids=SAFE_NAMES)
@pytest.mark.parametrize("retries", [False, True], ids=["another process", "a retry"])
@pytest.mark.parametrize(
    ("fault", "after"),
    [(interrupt, False), (interrupt, True), (lost, True), (refused, False)],
    ids=["interrupted before a request", "interrupted after", "answer lost", "not sent"],
)
def test_an_interrupted_repeat_leaves_the_call_as_it_was(url_of_bases, run_id, options, retries, fault, after):
    """Interrupts the repeat at each of its requests. `not_done` would be false: the first attempt may have happened."""
    url, at, interrupted = url_of_bases, 0, 0
    while True:
        at += 1
        one_run, effects = f"{run_id}-{at}", []
        config = Config(url)
        faults = SyncFaults(config)

        def pay(call, effects=effects):
            effects.append(call.attempt)
            if retries and call.attempt == 1:
                raise ConnectionResetError
            return "paid"

        with SyncRunlog(config, faults) as rl, sync.connect(url) as earlier:
            if not retries:
                with pytest.raises(Interrupted):
                    earlier.open(one_run).call("pay", {}, die, **options)
            run, how = rl.open(one_run), retried(**options) if retries else options
            set_deadline(rl, NO_RETRY)
            # Several in a row, so that the retry within the deadline does not hide a failure.
            faults.arm(at, after, fault, times=1 if fault is interrupt else 3)
            try:
                run.call("pay", {}, pay, **how)
            except (Interrupted, Error):
                interrupted += 1
            is_over, faults.at = faults.count < at, None
            set_deadline(rl, 30.0)
            run.turn("user", "settles the interrupted repeat")
            assert decisions(url, one_run) == [], at
            assert all(pending["class"] == "retry_safe" for pending in rl.recover(one_run).pending), at
            assert run.call("pay", {}, pay, **how).result == "paid"
            assert rl.recover(one_run).pending == []
        if is_over:
            break
    assert interrupted >= 2


@pytest.mark.parametrize("options", SAFE, ids=SAFE_NAMES)
@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after its answer"])
async def test_a_cancelled_repeat_leaves_the_call_as_it_was(url_of_bases, run_id, options, after):
    url, at, cancelled = url_of_bases, 0, 0

    async def pay(call):
        return "paid"

    while True:
        at += 1
        one_run, config = f"{run_id}-{at}", Config(url)
        faults = AsyncFaults(config)
        with sync.connect(url) as earlier, pytest.raises(Interrupted):
            earlier.open(one_run).call("pay", {}, die, **options)
        async with Runlog(config, faults) as rl:
            run = await rl.open(one_run)
            faults.arm(at, after)
            try:
                await asyncio.ensure_future(run.call("pay", {}, pay, **options))
            except asyncio.CancelledError:
                cancelled += 1
            requests, faults.at = faults.count, None
            await run.turn("user", "settles the cancelled repeat")
            assert decisions(url, one_run) == [], at
            assert (await run.call("pay", {}, pay, **options)).result == "paid"
        if requests < at:
            break
    assert cancelled == at - 1 >= 2


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after its answer"])
def test_an_interrupted_repeat_after_a_decision_can_run_again(url, run_id, after):
    """Without a key the decision permits one attempt. This process knows that it did not start it."""
    at, own = 0, 0
    while True:
        at += 1
        one_run, effects = f"{run_id}-{at}", []
        config = Config(url)
        faults = SyncFaults(config)
        with SyncRunlog(config, faults) as rl:
            run = rl.open(one_run)
            with pytest.raises(Interrupted):
                run.call("pay", {}, die)
            with pytest.raises(ReconcileRequired) as refusal:
                run.call("pay", {}, effects.append)
            decision = ("--not-done", "--who", "jo", "--why", "the bank has no payment", "--yes", "--force")
            done = command(url, "effects", "resolve", one_run, refusal.value.call, *decision)
            assert done.returncode == 0, done.stderr
            faults.arm(at, after, interrupt)
            try:
                run.call("pay", {}, lambda call, effects=effects: effects.append(call.attempt))
            except Interrupted:
                run.call("pay", {}, lambda call, effects=effects: effects.append(call.attempt))
            is_over, faults.at = faults.count < at, None
            assert len(effects) == 1, at
            own += len(decisions(url, one_run)) - 1
            assert rl.recover(one_run).pending == []
        if is_over:
            break
    assert own > 0, "no interruption came between an attempt and its effect"


@pytest.mark.parametrize("options", SAFE, ids=SAFE_NAMES)
@pytest.mark.parametrize("error", [ConnectionRefusedError, httpx2.ConnectError("no route")], ids=["builtin", "httpx2"])
def test_a_repeat_that_sent_nothing_does_not_say_that_the_first_attempt_failed(url_of_bases, run_id, options, error):
    errors = [ConnectionResetError("lost"), error]

    def pay(call):
        if errors:
            raise errors.pop(0)
        return "paid"

    ends = runlog.Ends(failed_on=(ConnectionRefusedError, httpx2.ConnectError))
    with sync.connect(url_of_bases) as rl, rl.run(run_id) as run:
        with pytest.raises(Unavailable) as unknown:
            run.call("pay", {}, pay, ends=ends, **retried(**options))
        assert unknown.value.happened is Happened.UNRECORDED and errors == []
        assert records(url_of_bases, run_id, "tool_call_failed") == []
        errors[:] = [error]
        with pytest.raises(Unavailable):
            run.call("pay", {}, pay, ends=ends, **options)
        assert run.call("pay", {}, pay, ends=ends, **options).result == "paid"


def test_a_first_attempt_that_sent_nothing_and_a_refusal_of_a_repeat_are_failures(url, run_id):
    errors = [ConnectionResetError("lost"), LookupError("the card is unknown")]

    def refused_at_last(call):
        raise errors.pop(0)

    def sent_nothing(call):
        raise ConnectionRefusedError

    ends = runlog.Ends(failed_on=(ConnectionRefusedError, LookupError))
    with sync.connect(url) as rl, rl.run(run_id) as run:
        with pytest.raises(runlog.Failed, match="the card is unknown"):
            run.call("pay", {}, refused_at_last, ends=ends, **retried(key="k"))
        with pytest.raises(runlog.Failed, match="ConnectionRefusedError"):
            run.call("mail", {}, sent_nothing, ends=ends, **retried(key="k"))
        # A decision says that no earlier attempt happened.
        with pytest.raises(Interrupted):
            run.call("fax", {}, die)
        with pytest.raises(ReconcileRequired) as refusal:
            run.call("fax", {}, die)
        decision = ("--not-done", "--who", "jo", "--why", "no fax", "--yes", "--force")
        assert command(url, "effects", "resolve", run_id, refusal.value.call, *decision).returncode == 0
        with pytest.raises(runlog.Failed, match="ConnectionRefusedError"):
            run.call("fax", {}, sent_nothing, ends=ends)


async def test_an_effect_that_answers_its_time_limit_with_another_error_is_unknown(url, run_id):
    @runlog.tool(timeout=0.05, failed_on=LookupError)
    async def pay(call: runlog.Call) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            raise LookupError("the request was cut") from error
        return "paid"

    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(ReconcileRequired, match="cut after"):
            await pay()
    assert records(url, run_id, "tool_call_failed") == []
