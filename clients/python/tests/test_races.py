"""Many processes, threads and tasks at once; and a call that is stopped at each of its steps."""

from __future__ import annotations

import asyncio
import functools
import itertools
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

import runlog
from conftest import command
from faults import Interrupted
from runlog import Config, Error, Fenced, ReconcileRequired, Unavailable, sync
from runlog._drive import SyncDriver
from runlog._http import SyncHttp
from runlog._wire import Acquire, Perform
from test_processes import run_agent, start

MANY = 8


def test_of_eight_processes_on_one_run_one_makes_each_call(url, run_id, tmp_path):
    ledger = tmp_path / "ledger"
    # There may be none: an intent whose process lost the run before its effect has to be decided.
    ledger.touch()
    racers = [start(url, run_id, ledger, "race") for _ in range(MANY)]
    outs = [racer.communicate(timeout=300)[0].split("\n")[-2].split() for racer in racers]
    words = Counter(out[0] for out in outs)
    assert set(words) <= {"done", "ClaimLost", "Fenced", "ReconcileRequired", "Conflict"}, words
    # The errors of a process that lost its run. It ran no effect after that.
    assert all(out[1] in ("nothing", "unknown", "evidence") for out in outs if out[0] != "done"), outs
    effects = ledger.read_text().split("\n")[:-1]
    assert effects.count("pay") <= 1, effects
    # Attempts of the call with a key are counted, one by one, in the order in which they are recorded.
    attempts = [int(effect.split()[2]) for effect in effects if effect.startswith("book")]
    assert len(set(attempts)) == len(attempts), effects
    run_agent(url, run_id, ledger, "go")
    assert ledger.read_text().split("\n").count("pay") <= 1
    assert '"error"' not in command(url, "anomalies", run_id, "--json").stdout


def test_a_result_that_arrives_after_a_decision_revokes_the_permission_to_run_again(url, run_id):
    started, going, ran = threading.Event(), threading.Event(), []

    def slow(call):
        started.set()
        assert going.wait(60)
        return "B-1"

    with (
        sync.connect(url) as first,
        sync.connect(url) as second,
        sync.connect(url) as third,
        ThreadPoolExecutor(1) as pool,
    ):
        booking = pool.submit(first.open(run_id).call, "book", {}, slow)
        assert started.wait(60)
        [pending] = second.open(run_id).pending
        decided = command(
            url, "effects", "resolve", run_id, pending["id"], "--not-done", "--who", "jo", "--why", "dead", "--yes"
        )
        assert decided.returncode == 0, decided.stderr
        run = third.open(run_id)
        assert [call["class"] for call in run.pending] == ["retry_safe"]
        going.set()
        with pytest.raises(Fenced):
            booking.result(60)
        for tool in ("other", "book"):
            with pytest.raises(ReconcileRequired):
                run.call(tool, {}, lambda call: ran.append(call.id))
    assert ran == []


def test_eight_threads_of_one_handle_make_each_call_once(url, run_id):
    effects, together = [], threading.Barrier(MANY)

    def work(run, n):
        together.wait(30)

        def effect(call, name):
            effects.append(name)
            return name

        own = [run.call("own", {"n": n, "i": i}, functools.partial(effect, name=(n, i))).result for i in range(5)]
        while True:
            try:
                shared = run.call("shared", {}, functools.partial(effect, name="shared"), key="k").result
                break
            except Unavailable as error:
                assert "is running in this process" in str(error)
        run.checkpoint([{"n": n}])
        return own, shared

    with sync.connect(url) as rl, ThreadPoolExecutor(MANY) as pool:
        run = rl.open(run_id)
        answers = list(pool.map(functools.partial(work, run), range(MANY)))
        found = rl.recover(run_id)
    assert answers == [([(n, i) for i in range(5)], "shared") for n in range(MANY)]
    assert Counter(effects) == Counter(["shared", *itertools.product(range(MANY), range(5))])
    assert found.pending == [] and found.messages in [[{"n": n}] for n in range(MANY)]


async def test_eight_tasks_of_one_handle_make_each_call_once(url, run_id):
    effects = []

    async def work(run, n):
        async def effect(call, name):
            effects.append(name)
            await asyncio.sleep(0)
            return name

        own = [
            (await run.call("own", {"n": n, "i": i}, functools.partial(effect, name=(n, i)))).result for i in range(5)
        ]
        while True:
            try:
                shared = (await run.call("shared", {}, functools.partial(effect, name="shared"), key="k")).result
                return own, shared
            except Unavailable as error:
                assert "is running in this process" in str(error)

    async with runlog.connect(url) as rl:
        run = await rl.open(run_id)
        answers = await asyncio.gather(*(work(run, n) for n in range(MANY)))
        found = await rl.recover(run_id)
    assert answers == [([(n, i) for i in range(5)], "shared") for n in range(MANY)]
    assert Counter(effects) == Counter(["shared", *itertools.product(range(MANY), range(5))])
    assert found.pending == []


def test_eight_threads_that_open_the_run_leave_one_writer(url, run_id):
    together, paid = threading.Barrier(MANY), []

    def work(n):
        with sync.connect(url) as rl:
            together.wait(30)
            try:
                run = rl.open(run_id)
                run.call("pay", {"sum": 1}, lambda call: paid.append(call.id))
                run.turn("assistant", f"paid, says {n}")
                return "done"
            except Error as error:
                return type(error).__name__

    with ThreadPoolExecutor(MANY) as pool:
        outcomes = Counter(pool.map(work, range(MANY)))
    assert len(paid) <= 1 and set(outcomes) <= {"done", "ClaimLost", "Fenced", "ReconcileRequired"}, outcomes
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        if not run.pending:
            run.call("pay", {"sum": 1}, lambda call: paid.append(call.id))
            assert len(paid) == 1


class Stopping(SyncDriver):
    """Stops at the n-th command of the core, before it is done or after. A lock that was acquired stays so for good: there
    the place after is the place before the next command."""

    def __init__(self, config: Config) -> None:
        super().__init__(SyncHttp(config))
        self.count, self.at, self.after, self.stopped = 0, 0, False, None

    def _do(self, command):
        self.count += 1
        hit = self.count == self.at
        if hit:
            self.stopped = type(command)
        if hit and (not self.after or isinstance(command, Acquire)):
            raise Interrupted
        result = super()._do(command)
        if hit:
            raise Interrupted
        return result


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("key", [None, "k"], ids=["without a key", "with a key"])
def test_a_call_that_is_stopped_at_any_command_of_the_core_happens_once(url, run_id, key, after):
    kinds = Counter()
    for at in itertools.count(1):
        with sync.Runlog(Config(url)) as rl:
            driver = rl._driver = Stopping(rl.config)
            run, effects = rl.open(f"{run_id}-{at}"), []
            driver.count, driver.at, driver.after, driver.stopped = 0, at, after, None
            unsure = False

            def effect(call, effects=effects):
                effects.append(call.attempt)
                return "paid"

            steps = [
                lambda run=run: run.call("pay", {"sum": 1}, effect, key=key),
                lambda run=run: run.turn("user", "paid"),
            ]
            answer = None
            while steps:
                try:
                    done = steps[0]()
                    answer = answer or done.result
                    steps.pop(0)
                except Interrupted:
                    unsure = driver.stopped is Perform and after
                except ReconcileRequired:
                    # The effect ran, and its result was lost with the interruption.
                    assert unsure and key is None
                    break
            if driver.stopped is None:
                break
            kinds[driver.stopped.__name__] += 1
            driver.at = 0
            if unsure:
                assert effects == ([1] if key is None else [1, 2])
            else:
                assert len(effects) == 1 and answer == "paid", (at, driver.stopped, effects)
                assert rl.recover(run.id).pending == []
    assert set(kinds) == {"Acquire", "Request", "Perform"} and kinds["Request"] >= 3, kinds


class Cancelling:
    """Awaits a coroutine, and cancels it at its n-th suspension: in place of it, or when it is over."""

    def __init__(self, coroutine, at, after):
        self.coroutine, self.at, self.after, self.count = coroutine, at, after, 0

    def __await__(self):
        step, value = self.coroutine.send, None
        while True:
            try:
                future = step(value)
            except StopIteration as stop:
                return stop.value
            self.count += 1
            hit = self.count == self.at
            if hit and not self.after:
                if future is not None:
                    future._asyncio_future_blocking = False
                step, value = self.coroutine.throw, asyncio.CancelledError()
                continue
            try:
                step, value = self.coroutine.send, (yield future)
            except BaseException as error:
                step, value = self.coroutine.throw, error
            if hit:
                step, value = self.coroutine.throw, asyncio.CancelledError()


@pytest.mark.parametrize("after", [False, True], ids=["in place of it", "when it is over"])
async def test_a_handle_works_after_a_task_is_cancelled_at_any_await(url, run_id, after):
    cancelled = 0
    async with runlog.connect(url) as rl:
        for at in itertools.count(1):
            run, effects, left = await rl.open(f"{run_id}-{at}"), [], at

            async def effect(call, effects=effects):
                effects.append(call.id)
                return len(effects)

            for operation in (
                functools.partial(run.call, "find", {"to": "LHR"}, effect),
                functools.partial(run.checkpoint, [{"role": "user", "content": "hello"}], {"step": 1}),
                functools.partial(run.call, "book", {"seats": 2}, effect, key="k"),
                functools.partial(
                    run.batch, [{"type": "conversation_turn", "message_id": "m", "kind": "user", "content": 1}]
                ),
                functools.partial(run.prune_checkpoints),
                functools.partial(run.turn, "user", "thanks"),
            ):
                cancelling = Cancelling(operation(), left, after)
                try:
                    await cancelling
                except asyncio.CancelledError:
                    cancelled += 1
                    await operation()
                left -= cancelling.count
            assert len(effects) == 2 and (await rl.recover(run.id)).pending == [], at
            if left > 0:
                break
    assert cancelled == at - 1 >= 9, cancelled


async def test_a_result_that_an_interrupted_call_holds_is_recorded_when_the_block_is_left(url, run_id):
    """A task is cancelled while it waits for another task's request, after its effect ran."""
    ran = asyncio.Event()

    async def effect(call):
        ran.set()
        return "paid"

    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            task = asyncio.ensure_future(run.call("pay", {}, effect))
            await ran.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert run.held[0] == 1
        assert run.held == (0, 0) and (await rl.recover(run_id)).pending == []


def test_a_unique_call_is_answered_again_by_the_same_process_and_another_one_is_made_again(url, run_id):
    with sync.connect(url) as rl:
        run, made = rl.open(run_id), []
        for unique in (True, True, False):
            answer = run.call("pay", {"id": 7}, lambda call: made.append(call.id), unique=unique)
        assert len(made) == 2 and answer.call_id == made[1]
        with pytest.raises(runlog.Failed):
            run.call("book", {"id": 8}, sold_out, unique=True)
        with pytest.raises(runlog.Failed) as failed:
            run.call("book", {"id": 8}, lambda call: pytest.fail("ran"), unique=True)
        assert failed.value.recorded


def sold_out(call):
    raise runlog.Failed("sold_out")
