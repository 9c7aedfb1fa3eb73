"""Runs that have ended: they answer, and run nothing."""

from __future__ import annotations

import asyncio
import functools
import uuid

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, StateGraph

import runlog
from conftest import command
from faults import SyncFaults, lost
from runlog import Config, Conflict, Happened, ReconcileRequired, sync
from runlog.langchain import RunlogMiddleware
from runlog.langgraph import RunlogSaver
from runlog.openai_agents import RunlogSession
from test_langchain import Scripted
from test_openai_agents import item
from test_pydantic_ai import Travel

MESSAGES = [{"role": "user", "content": "to London"}]
refused = functools.partial(pytest.raises, Conflict, match="is completed")


def records(url, run_id):
    return command(url, "show", run_id, "--raw", "--json").stdout


def trip(run, made):
    """Makes a failing call, a call without a key, a call with a key and a unique call. Returns the last three results."""

    @runlog.tool
    def find(call, args):
        made.append("find")
        return "HAT136"

    def effect(name):
        def run_it(call):
            made.append(name)
            if name == "sell":
                raise runlog.Failed("sold_out", "no seats")
            return name

        return run_it

    with pytest.raises(runlog.Failed, match="no seats"):
        run.call("sell", {}, effect("sell"))
    return [
        find(run, {"to": "LHR"}),
        run.call("book", {}, effect("book"), key="k").result,
        run.call("pay", {"id": 7}, effect("pay"), unique=True).result,
    ]


def test_a_program_run_again_after_its_end_gets_the_recorded_results(url, run_id):
    made = []
    with sync.connect(url) as rl:
        for times in range(3):
            before = records(url, run_id)
            with rl.run(run_id) as run:
                assert trip(run, made) == ["HAT136", "book", "pay"]
                run.checkpoint(MESSAGES, {"trip": 1})
                run.end("completed", "booked")
                run.end("completed", "booked")
                # On the handle that ended the run, then on handles that were opened after its end.
                assert run.call("book", {}, lambda call: pytest.fail("ran"), key="k").recorded
                assert run.call("pay", {"id": 7}, lambda call: pytest.fail("ran"), unique=True).recorded
            assert times == 0 or records(url, run_id) == before
        assert made == ["sell", "find", "book", "pay"]
        assert rl.recover(run_id).status == "completed"


def test_nothing_new_runs_or_is_recorded_in_a_run_that_has_ended(url, run_id):
    with sync.connect(url) as rl:
        run = rl.open(run_id)
        run.call("book", {}, lambda call: "booked", key="k")
        run.checkpoint(MESSAGES)
        run.end("completed", "booked")
        before = records(url, run_id)
        for handle in (run, rl.open(run_id)):
            for make in (
                lambda handle=handle: handle.call("book", {"n": 2}, lambda call: pytest.fail("ran")),
                lambda handle=handle: handle.call("book", {"n": 2}, lambda call: pytest.fail("ran"), key="l"),
                lambda handle=handle: handle.end("completed"),
                lambda handle=handle: handle.end("failed", "booked"),
                lambda handle=handle: handle.checkpoint([*MESSAGES, *MESSAGES]),
                lambda handle=handle: handle.checkpoint(MESSAGES, {"other": 1}),
                lambda handle=handle: handle.turn("user", "and back"),
            ):
                with refused() as error:
                    make()
                assert (error.value.happened, error.value.action) == (Happened.NOTHING, "fix_the_input")
            with pytest.raises(Conflict, match="other arguments"):
                handle.call("book", {"n": 2}, lambda call: pytest.fail("ran"), key="k")
        assert records(url, run_id) == before
        resumed = rl.open(run_id)
        assert resumed.recovery.messages
        with refused(match=r"read `run\.recovery`, so it must not make calls again that the last checkpoint covers"):
            resumed.call("book", {"n": 3}, lambda call: pytest.fail("ran"))


async def test_a_pending_call_of_an_ended_run_is_not_attempted_but_answered_once_it_is_decided(url, run_id):
    async def unsure(call):
        raise runlog.Unknown("no answer")

    async def never(call):
        pytest.fail("ran")

    async with runlog.connect(url) as rl:
        run = await rl.open(run_id, allow_unresolved=True)
        with pytest.raises(runlog.Unavailable):
            await run.call("book", {}, unsure, key="k")
        with pytest.raises(ReconcileRequired) as pending:
            await run.call("pay", {}, unsure)
        await run.end()
        for handle in (run, await rl.open(run_id)):
            with pytest.raises(Conflict, match=r"book.*did not end.*effects resolve") as attempt:
                await handle.call("book", {}, never, key="k")
            assert attempt.value.record_id is not None
            with pytest.raises(ReconcileRequired):
                await handle.call("pay", {}, never)
        decided = (("pay", None, pending.value.call, "paid"), ("book", "k", attempt.value.record_id, "booked"))
        for tool, key, call, result in decided:
            resolved = ("effects", "resolve", run_id, call, "--done", f'"{result}"', "--who", "jo", "--why", "seen")
            assert command(url, *resolved, "--yes").returncode == 0
            assert (await handle.call(tool, {}, never, key=key)).result == result


def test_an_end_whose_answer_was_lost_is_made_again(url, run_id):
    config = Config(url, deadline=1)
    faults = SyncFaults(config)
    with sync.Runlog(config, faults) as rl:
        run = rl.open(run_id)
        faults.arm(1, True, lost, times=1000)
        with pytest.raises(runlog.Unavailable):
            run.end()
        faults.at = None
        run.end()
        assert records(url, run_id).count('"type":"run_lifecycle"') == 2


def test_a_handle_that_never_read_its_recovery_begins_at_the_start_and_one_that_did_at_the_checkpoint(url, run_id):
    made = []

    def tick(run):
        return run.call("tick", {}, lambda call: made.append(1) or len(made)).result

    with sync.connect(url) as rl:
        run = rl.open(run_id)
        assert (tick(run), tick(run)) == (1, 2)
        run.checkpoint(MESSAGES)
        assert tick(rl.open(run_id)) == 1
        read = rl.open(run_id)
        assert read.recovery.messages == MESSAGES and tick(read) == 3
        late = rl.open(run_id)
        assert (tick(late), late.recovery.messages, tick(late), tick(late)) == (1, MESSAGES, 3, 4)
        # A program that continues from the start keeps its place when it takes a checkpoint there.
        start = rl.open(run_id)
        assert tick(start) == 1
        start.checkpoint([*MESSAGES, *MESSAGES])
        read = rl.open(run_id)
        assert len(read.recovery.messages) == 2 and [tick(read) for _ in range(4)] == [2, 3, 4, 5]


async def test_the_tools_of_a_langchain_agent_are_answered_from_an_ended_run(url, run_id):
    booked = []

    async def book(seat: str) -> str:
        """Books a seat."""
        booked.append(seat)
        return f"booked {seat}"

    class Another(Scripted):
        def _generate(self, messages, stop=None, run_manager=None, **_):
            found = super()._generate(messages)
            for call in found.generations[0].message.tool_calls:
                call["id"] += "-2"
            return found

    async with runlog.connect(url) as rl:
        for _ in range(2):
            async with rl.run(run_id) as run:
                agent = create_agent(Scripted(), [book], middleware=[RunlogMiddleware()])
                answer = await agent.ainvoke({"messages": MESSAGES})
                await run.checkpoint(MESSAGES)
                await run.end()
            assert sorted(booked) == ["1A", "1B"] and isinstance(answer["messages"][-1], AIMessage)
        async with rl.run(run_id):
            with refused():
                await create_agent(Another(), [book], middleware=[RunlogMiddleware()]).ainvoke({"messages": MESSAGES})
        assert sorted(booked) == ["1A", "1B"]


async def test_the_runs_of_a_pydantic_ai_agent_are_answered_from_an_ended_run(url, run_id):
    first, again = Travel(), Travel()
    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            said = [await asyncio.gather(*(first.agent.run(f"to {city}") for city in ("Oslo", "Rome")))]
            await run.checkpoint(MESSAGES)
            said.append(await first.agent.run("to Bern"))
            await run.end()
        async with rl.run(run_id):
            heard = [await asyncio.gather(*(again.agent.run(f"to {city}") for city in ("Oslo", "Rome")))]
            heard.append(await again.agent.run("to Bern"))
            with refused():
                await again.agent.run("to Paris")
    # The rest of an id differs in each process.
    names = [[answer.run_id.partition("@")[0] for answer in (*of[0], of[1])] for of in (said, heard)]
    assert names[0] == names[1]
    assert again.asked == again.effects == []


async def test_a_session_of_the_openai_agents_sdk_is_read_in_an_ended_run_and_not_written(url, run_id):
    async def tick(call):
        return 1

    async with runlog.connect(url) as rl:
        run = await rl.open(run_id)
        await RunlogSession(run).add_items([item(1)])
        await run.call("tick", {}, tick)
        await run.end()
        run = await rl.open(run_id)
        session = RunlogSession(run)
        assert (await run.call("tick", {}, tick)).recorded
        for write in (session.add_items([item(2)]), session.pop_item(), session.clear_session()):
            with refused():
                await write
        assert await session.get_items() == [item(1)]


def test_a_thread_whose_run_has_ended_is_read_and_not_written(url):
    prefix, config = f"{uuid.uuid4()}/", {"configurable": {"thread_id": "t"}}
    graph = StateGraph(dict)
    graph.add_node("one", lambda state: {"done": 1})
    graph.add_edge(START, "one")
    graph.add_edge("one", END)
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        graph.compile(checkpointer=saver).invoke({"done": 0}, config)
        assert command(url, "cancel", f"{prefix}t", "--who", "jo", "--why", "over", "--yes").returncode == 0
    before = records(url, f"{prefix}t")
    with RunlogSaver.connect(url, prefix=prefix) as saver:
        compiled = graph.compile(checkpointer=saver)
        assert compiled.get_state(config).values == {"done": 1}
        with pytest.raises(Conflict, match="is cancelled"):
            compiled.invoke({"done": 2}, config)
    assert records(url, f"{prefix}t") == before
