"""A tool is called in a run, or it raises: in threads, pools, processes and event loops."""

from __future__ import annotations

import asyncio
import contextvars
import multiprocessing
import pickle
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Thread

import pytest

import runlog
from runlog import Forked, Usage, aio, sync
from runlog._tool import current_run


@runlog.tool(key=lambda order: f"order-{order}")
def charge(call, order: int):
    return ["charged", order, call.attempt]


@runlog.tool
async def ship(call, order: int):
    return ["shipped", order]


@contextmanager
def thread():
    def submit(function, *args):
        future = Future()

        def work():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        Thread(target=work).start()
        return future

    yield submit


@contextmanager
def pool(kind):
    with kind(1) as executor:
        yield executor.submit


@contextmanager
def worker(kind):
    """A worker that took tasks before the run was opened."""
    with pool(kind) as submit:
        submit(int).result()
        yield submit


spawned = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("spawn"))
forked = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("fork"))


@pytest.mark.parametrize(
    ("elsewhere", "error"),
    [
        (thread, Usage),
        (partial(pool, ThreadPoolExecutor), Usage),
        (partial(worker, ThreadPoolExecutor), Usage),
        (partial(worker, spawned), Usage),
        (partial(pool, forked), Forked),
    ],
    ids=["thread", "pool of threads", "worker thread", "worker process", "forked process"],
)
def test_a_tool_in_another_thread_or_process_raises_and_does_nothing(url, run_id, elsewhere, error):
    with elsewhere() as submit, sync.connect(url) as rl, rl.run(run_id):
        with pytest.raises(error):
            submit(charge, 1).result(timeout=300)
        assert rl.recover(run_id).pending == rl.recover(run_id).completed == []


async def test_a_tool_in_an_executor_of_asyncio_raises_and_does_nothing(url, run_id):
    with sync.connect(url) as rl, rl.run(run_id):
        with pytest.raises(Usage, match="charge was called outside of a run"):
            await asyncio.get_running_loop().run_in_executor(None, charge, 1)
        assert rl.recover(run_id).pending == rl.recover(run_id).completed == []


def test_a_tool_before_and_after_the_block_of_a_run_raises(url, run_id):
    outside = partial(pytest.raises, Usage, match="charge was called outside of a run")
    with outside():
        charge(1)
    with sync.connect(url) as rl, rl.run(run_id):
        charge(1)
    with outside():
        charge(1)
    # Not only once its coroutine is awaited, which other code may never do.
    with pytest.raises(Usage, match="ship was called outside of a run"):
        ship(1)


async def test_the_current_run_follows_the_context(url, run_id):
    charged = ["charged", 1, 1]
    with sync.connect(url) as rl, rl.run(run_id) as run, ThreadPoolExecutor(1) as threads:
        assert await asyncio.to_thread(charge, 1) == charged
        assert threads.submit(contextvars.copy_context().run, charge, 1).result() == charged
        assert threads.submit(charge, run, 1).result() == charged
        assert len(rl.recover(run_id).completed) == 1
    async with runlog.connect(url) as rl, rl.run(f"{run_id}-2"):
        await asyncio.gather(ship(1), asyncio.create_task(ship(2)))
        assert len((await rl.recover(f"{run_id}-2")).completed) == 2


async def test_a_tool_in_another_event_loop_raises_and_the_run_continues(url, run_id):
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(Usage, match="belongs to another event loop"):
            await asyncio.to_thread(lambda: asyncio.run(ship(1)))
        assert await ship(2) == ["shipped", 2]
        assert len((await rl.recover(run_id)).completed) == 1


def test_a_tool_that_may_be_plain_outside_of_a_run_is_given_no_recorded_call(url):
    @runlog.tool(plain_outside=True, key=lambda order: f"order-{order}")
    def pay(call, order: int):
        return call

    call = pay(order=7)
    assert (call.attempt, call.idempotency_key) == (0, "order-7") and pay(7).id != call.id


def test_a_tool_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(charge)) is charge


def test_a_block_that_ends_in_another_context_leaves_the_run(url, run_id, monkeypatch):
    """A dependency of a web framework begins and ends in two contexts."""
    left = []
    monkeypatch.setattr(sync.Run, "leave", lambda run: left.append(run.id))
    with sync.connect(url) as rl:
        block = rl.run(run_id)
        began = contextvars.copy_context()
        run = began.run(block.__enter__)
        assert began.run(current_run.get) is run
        contextvars.copy_context().run(block.__exit__, None, None, None)
        assert left == [run_id] and current_run.get() is None
        with rl.run(f"{run_id} outer") as outer:
            with rl.run(f"{run_id} inner") as inner:
                assert current_run.get() is inner
            assert current_run.get() is outer
        assert current_run.get() is None


async def test_a_generator_that_another_task_closes_leaves_the_run(url, run_id, monkeypatch):
    left = []

    async def leave(run):
        left.append(run.id)

    monkeypatch.setattr(aio.Run, "leave", leave)

    async def steps(rl):
        async with rl.run(run_id) as run:
            yield run

    async with runlog.connect(url) as rl:
        generator = steps(rl)
        await asyncio.create_task(anext(generator))
        await asyncio.create_task(generator.aclose())
        assert left == [run_id]
