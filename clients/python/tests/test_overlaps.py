"""Checkpoints that are taken while calls are in flight."""

from __future__ import annotations

import asyncio

import pytest

import runlog
from faults import Interrupted
from runlog import Config, sync
from runlog._http import AsyncHttp
from runlog.aio import Runlog


async def test_a_call_that_was_answered_beside_a_running_one_is_answered_again_after_an_autosave_and_a_crash(
    url, run_id
):
    made, messages = [], [{"role": "user", "content": "do a and b"}]

    async def a(call):
        made.append("a")
        return "a is done"

    async with runlog.connect(url) as rl:
        # The second process gets `a` from the journal, and is killed at the same place.
        for recorded in (False, True):
            run, running, killed = await rl.open(run_id), asyncio.Event(), asyncio.Event()

            async def b(call, running=running, killed=killed):
                running.set()
                await killed.wait()
                raise runlog.Unknown("killed")

            assert run.recovery.messages == (messages if recorded else [])
            step = asyncio.ensure_future(run.call("b", {}, b, key="b"))
            await running.wait()
            assert (await run.call("a", {}, a)).recorded is recorded
            await run.checkpoint(messages)
            killed.set()
            with pytest.raises(runlog.Unavailable):
                await step

        run = await rl.open(run_id)
        assert [done["tool_name"] for done in run.recovery.completed] == ["a"]
        assert (await run.call("a", {}, a)).recorded and made == ["a"]
        # No call is in flight: the step's answers are in the messages.
        await run.checkpoint([*messages, {"role": "tool", "content": "a is done"}])
        run = await rl.open(run_id)
        assert run.recovery.completed == []
        assert not (await run.call("a", {}, a)).recorded


@pytest.mark.parametrize("failed", [False, True], ids=["completed", "failed"])
def test_a_signal_handler_that_takes_a_checkpoint_covers_no_answer_of_the_step_that_it_interrupts(url, run_id, failed):
    def a(call):
        if failed:
            raise runlog.Failed("sold_out")
        return "booked"

    with sync.connect(url) as rl:
        run = rl.open(run_id)

        def interrupted(call):
            try:
                run.call("a", {}, a)
            except runlog.Failed:
                assert failed
            run.checkpoint([{"role": "user", "content": "do it"}])
            raise Interrupted

        with pytest.raises(Interrupted):
            run.call("b", {}, interrupted, key="b")
        run = rl.open(run_id)
        assert len(run.recovery.messages) == 1
        try:
            assert run.call("a", {}, lambda call: pytest.fail("ran")).recorded
        except runlog.Failed as error:
            assert failed and error.recorded


class Holding:
    """Holds back the record of a call's result."""

    def __init__(self, config):
        self.http, self.held, self.sent = AsyncHttp(config), asyncio.Event(), asyncio.Event()

    async def send(self, request):
        if b"tool_call_completed" in (request.body or b""):
            self.held.set()
            await self.sent.wait()
        return await self.http.send(request)

    async def close(self):
        await self.http.close()


async def test_an_answer_that_arrives_while_a_checkpoint_waits_is_not_covered_by_it(url, run_id):
    transport = Holding(Config(url))

    async def a(call):
        return "a is done"

    async with Runlog(Config(url), transport) as rl:
        run = await rl.open(run_id)
        step = asyncio.ensure_future(run.call("a", {}, a))
        await transport.held.wait()
        autosave = asyncio.ensure_future(run.checkpoint([]))
        await asyncio.sleep(0)  # the checkpoint has its messages
        transport.sent.set()
        await asyncio.gather(step, autosave)
        assert [done["tool_name"] for done in (await rl.recover(run_id)).completed] == ["a"]
        await run.checkpoint([])
        assert (await rl.recover(run_id)).completed == []
