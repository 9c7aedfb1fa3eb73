"""After an interruption at any point the same handle continues, and each effect runs exactly once."""

from __future__ import annotations

import asyncio
import functools
import json
import time
from types import SimpleNamespace

import pytest

from conftest import command
from faults import AsyncFaults, Interrupted, SyncFaults, interrupt, lost, refused
from runlog import Action, Config, Error, ReconcileRequired, Stale, Unavailable, _clock
from runlog._wire import Response
from runlog.aio import Runlog
from runlog.sync import Runlog as SyncRunlog

MESSAGES = [{"role": "user", "content": "to London"}, {"role": "tool", "content": "HAT136"}]


class Script:
    """An agent of three calls, two checkpoints and an end. Each step may be requested again."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.answers: dict[str, object] = {}

    def effect(self, name):
        self.effects.append(name)
        return {"done": name}

    def steps(self, run):
        def call(name, tool, args, key=None):
            self.answers[name] = run.call(tool, args, lambda call: self.effect(name), key=key).result

        yield lambda: call("find", "find", {"to": "LHR"})
        yield lambda: run.checkpoint(MESSAGES[:1], {"step": 1})
        yield lambda: call("book", "book", {"seats": 2}, "key-1")
        yield lambda: call("find again", "find", {"to": "LHR"})
        yield lambda: run.checkpoint(MESSAGES, {"step": 2})
        yield lambda: run.end()

    def check(self):
        assert sorted(self.effects) == ["book", "find", "find again"]
        assert self.answers == {name: {"done": name} for name in self.effects}


DEADLINE = 30.0
NO_RETRY = 0.04
"""Less than the pause before a retry. A machine that is busy may take longer to answer."""


def set_deadline(runlog, seconds):
    object.__setattr__(runlog.config, "deadline", seconds)


def connected(url):
    config = Config(url, deadline=DEADLINE)
    faults = SyncFaults(config)
    return SyncRunlog(config, faults), faults


def requests_of_a_whole_run(url, run_id):
    runlog, faults = connected(url)
    with runlog:
        run = runlog.open(run_id)
        faults.count, script = 0, Script()
        for step in script.steps(run):
            step()
        script.check()
    return faults.count


@pytest.mark.parametrize(
    ("fault", "after"),
    [(interrupt, False), (interrupt, True), (lost, False), (lost, True), (refused, False)],
    ids=["interrupted before a request", "interrupted after", "never arrives", "answer lost", "not sent"],
)
def test_an_operation_that_is_interrupted_at_any_request_is_repeated_by_the_same_handle(url, run_id, fault, after):
    total, recovered = requests_of_a_whole_run(url, run_id), 0
    for at in range(1, total + 1):
        one_run = f"{run_id}-{at}"
        runlog, faults = connected(url)
        with runlog:
            run = runlog.open(one_run)
            script = Script()
            set_deadline(runlog, NO_RETRY)
            # Several in a row, so that the retry within the deadline does not hide a failure.
            faults.arm(at, after, fault, times=1 if fault is interrupt else 3)
            for step in script.steps(run):
                for _ in range(10):
                    try:
                        step()
                        break
                    except (Interrupted, Error):
                        recovered += 1
                        if faults.count >= at:
                            set_deadline(runlog, DEADLINE)
                else:
                    pytest.fail("the handle does not continue")
            script.check()
            # An intent that was given up would stay pending.
            found = runlog.recover(one_run)
            assert found.status == "completed" and found.pending == []
    assert recovered >= total // 2


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after its answer"])
async def test_a_handle_works_after_a_task_is_cancelled_at_any_request(url, run_id, after):
    at = cancelled = 0
    while True:
        at += 1
        config = Config(url)
        faults = AsyncFaults(config)
        async with Runlog(config, faults) as runlog:
            run = await runlog.open(f"{run_id}-{at}")
            effects = []

            async def effect(call, effects=effects):
                effects.append(call.attempt)
                return len(effects)

            faults.arm(at, after)
            for operation in (
                functools.partial(run.call, "find", {"to": "LHR"}, effect),
                functools.partial(run.checkpoint, MESSAGES, {"step": 1}),
                functools.partial(run.call, "book", {"seats": 2}, effect, key="k"),
                functools.partial(run.turn, "user", "thanks"),
            ):
                task = asyncio.ensure_future(operation())
                try:
                    await task
                except asyncio.CancelledError:
                    cancelled += 1
                    await operation()
            requests, faults.at = faults.count, None
            assert len(effects) == 2 and (await runlog.recover(run.id)).pending == []
            if requests < at:
                break
            await run.end()
    assert cancelled == at - 1 >= 6


async def test_a_call_that_is_cancelled_while_its_effect_runs_blocks_new_calls_until_it_is_decided(url, run_id):
    async with Runlog(Config(url)) as runlog:
        run = await runlog.open(run_id)
        started = asyncio.Event()

        async def effect(call):
            started.set()
            await asyncio.sleep(60)

        task = asyncio.ensure_future(run.call("pay", {"sum": 1}, effect))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        async def never(call):
            raise AssertionError("an effect ran that must not")

        for tool in ("pay", "book"):
            with pytest.raises(ReconcileRequired) as refusal:
                await run.call(tool, {"sum": 1}, never)
        call = refusal.value.call
        decision = ("--done", '{"paid": 1}', "--who", "jo", "--why", "the bank says so", "--yes", "--force")
        done = command(url, "effects", "resolve", run_id, call, *decision)
        assert done.returncode == 0, done.stderr
        assert (await run.call("pay", {"sum": 1}, never)).result == {"paid": 1}


async def test_a_call_with_a_key_that_is_cancelled_while_its_effect_runs_runs_again_as_a_second_attempt(url, run_id):
    async with Runlog(Config(url)) as runlog:
        run = await runlog.open(run_id)
        attempts, started = [], asyncio.Event()

        async def effect(call):
            attempts.append((call.attempt, call.idempotency_key))
            started.set()
            await asyncio.sleep(60 if call.attempt == 1 else 0)
            return "paid"

        task = asyncio.ensure_future(run.call("pay", {"sum": 1}, effect, key="k"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await run.call("pay", {"sum": 1}, effect, key="k")).result == "paid"
        assert attempts == [(1, "k"), (2, "k")]


class MayNotDecide(SyncFaults):
    """Answers decisions as a server does whose token has no `resolve`. The first decision, or the recovery after it, gets no
    answer if `unanswered` says so."""

    def __init__(self, config, unanswered):
        super().__init__(config)
        self.unanswered, self.decisions = unanswered, 0

    def send(self, request):
        is_decision = b'"effect_resolution"' in (request.body or b"")
        self.decisions += is_decision
        if (self.unanswered == "decision" and is_decision) or (
            self.unanswered == "recovery" and self.decisions and "/recovery" in request.path
        ):
            self.unanswered = None
            lost()
        if not is_decision:
            return super().send(request)
        problem = {"status": 403, "title": "forbidden", "kind": "forbidden", "detail": "needs the scope resolve"}
        return Response(403, {"content-type": "application/problem+json"}, json.dumps(problem).encode())


@pytest.mark.parametrize("unanswered", [None, "decision", "recovery"])
def test_a_call_that_the_handle_may_not_decide_about_stays_pending(url, run_id, unanswered):
    config, effects = Config(url, deadline=DEADLINE), []
    faults = MayNotDecide(config, unanswered)
    with SyncRunlog(config, faults) as runlog:
        run = runlog.open(run_id)
        run.call("find", {}, lambda call: None)
        faults.arm(1, True, lost, times=3)
        set_deadline(runlog, NO_RETRY)
        with pytest.raises((Stale, Unavailable)):
            run.call("pay", {"sum": 1}, lambda call: effects.append(call.attempt))
        faults.at = None
        if unanswered:
            with pytest.raises((Stale, Unavailable)):
                run.turn("user", "not yet")
        set_deadline(runlog, DEADLINE)
        run.turn("user", "hello")
        with pytest.raises(ReconcileRequired) as refusal:
            run.call("pay", {"sum": 1}, lambda call: effects.append(call.attempt))
        decision = ("--not-done", "--who", "jo", "--why", "it never started", "--yes", "--force")
        done = command(url, "effects", "resolve", run_id, refusal.value.call, *decision)
        assert done.returncode == 0, done.stderr
        run.call("pay", {"sum": 1}, lambda call: effects.append(call.attempt))
    assert effects == [2] and faults.decisions > 0


class DecidedMeanwhile(SyncFaults):
    """Once an intent is acknowledged, an operator decides that the call did not happen, and the machine is suspended for 31 s."""

    def __init__(self, config, run_id, monkeypatch):
        super().__init__(config)
        self.run_id, self.monkeypatch, self.url = run_id, monkeypatch, config.url

    def send(self, request):
        response = super().send(request)
        if b'"tool_call_requested"' in (request.body or b""):
            later = time.time() + 31
            self.monkeypatch.setattr(_clock, "time", SimpleNamespace(monotonic=time.monotonic, time=lambda: later))
            call = json.loads(request.body)["record_id"]
            decision = ("--not-done", "--who", "jo", "--why", "the bank has no payment", "--yes", "--force")
            assert command(self.url, "effects", "resolve", self.run_id, call, *decision).returncode == 0
        return response


def test_an_effect_whose_call_was_decided_while_its_process_was_suspended_runs_once(url, run_id, monkeypatch):
    config, effects = Config(url), []
    with SyncRunlog(config, DecidedMeanwhile(config, run_id, monkeypatch)) as late, SyncRunlog(config) as other:
        with pytest.raises(Stale) as stale:
            late.open(run_id).call("pay", {"sum": 1}, lambda call: effects.append("late"))
        assert (effects, stale.value.action) == ([], Action.REOPEN)
        other.open(run_id).call("pay", {"sum": 1}, lambda call: effects.append("other"))
    assert effects == ["other"]


def pay(run, effects, key):
    try:
        answer = run.call("pay", {"sum": 1}, lambda call: effects.append((call.id, call.idempotency_key)), key=key)
        return "recorded" if answer.recorded else "ran"
    except Error as error:
        return type(error).__name__


@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
def test_two_processes_that_take_turns_between_any_two_requests_run_an_effect_once(url, run_id, key):
    """The second process opens the run and makes the whole call between two requests of the first process. With a key
    the effect may run twice, as one call."""
    firsts, seconds = set(), set()
    for at in range(1, 9):
        one_run, effects = f"{run_id}-{at}", []
        runlog, faults = connected(url)
        with runlog, SyncRunlog(Config(url)) as other:

            def take_over(one_run=one_run, effects=effects, faults=faults, other=other):
                faults.at = None
                seconds.add(pay(other.open(one_run), effects, key))

            faults.arm(at, True, take_over)
            try:
                firsts.add(pay(runlog.open(one_run), effects, key))
            except Error as error:
                firsts.add(type(error).__name__)
            assert pay(other.open(one_run), effects, key) in ("ran", "recorded", "ReconcileRequired")
        assert len(effects) <= (1 if key is None else 2) and len(set(effects)) <= 1, (at, effects)
    assert "ran" in firsts and "ran" in seconds and firsts & {"Fenced", "ClaimLost"}


def test_a_claim_with_a_lost_answer_is_found_again_and_fences_no_writer(url, run_id):
    runlog, faults = connected(url)
    with runlog:
        faults.arm(2, True, lost)
        run = runlog.open(run_id)
        assert faults.count > 2 and run.epoch == 1
        shown = [json.loads(line) for line in command(url, "show", run_id, "--raw", "--json").stdout.splitlines()]
        claims = {line["record_id"] for line in shown if line["payload_type"] == "run_claim"}
        assert len(claims) == 1 and run.call("pay", {}, lambda call: "paid").result == "paid"
