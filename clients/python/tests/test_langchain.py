"""The tools of a LangChain agent in a run."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import runlog.sync
from runlog import Usage
from runlog.langchain import RunlogMiddleware
from runlog.langgraph import RunlogSaver
from runlog.pydantic_ai import RunlogDurability


class Scripted(BaseChatModel):
    """Calls two tools at once, then answers."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        if len(messages) > 1:
            return ChatResult(generations=[ChatGeneration(message=AIMessage("done"))])
        calls = [{"name": "book", "args": {"seat": seat}, "id": f"call-{seat}"} for seat in ("1A", "1B")]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])


async def test_a_tool_that_ended_is_not_called_again_if_its_message_was_not_stored(url, run_id):
    """The graph is interrupted between the gate's answer and LangGraph's record of it, and continues in the same process."""
    booked = []

    async def book(seat: str) -> str:
        """Books a seat."""
        booked.append(seat)
        return f"booked {seat}"

    async with RunlogSaver.connect(url, prefix=f"{uuid.uuid4()}/") as saver, runlog.connect(url) as rl:
        put_writes, running = saver.aput_writes, []

        async def aput_writes(config, writes, task_id, task_path=""):
            if booked and len(running) == 1:
                running[0].cancel()
                await asyncio.sleep(60)
            await put_writes(config, writes, task_id, task_path)

        saver.aput_writes = aput_writes
        agent = create_agent(Scripted(), [book], middleware=[RunlogMiddleware()], checkpointer=saver)
        config = {"configurable": {"thread_id": "t"}}
        asked = {"messages": [{"role": "user", "content": "two seats"}]}
        async with rl.run(run_id):
            running.append(asyncio.ensure_future(agent.ainvoke(asked, config, durability="sync")))
            with pytest.raises(asyncio.CancelledError):
                await running[0]
            running.append(asyncio.ensure_future(agent.ainvoke(None, config, durability="sync")))
            result = await running[1]
        assert sorted(booked) == ["1A", "1B"]
        assert [message.content for message in result["messages"]][1:] == ["", "booked 1A", "booked 1B", "done"]


async def test_an_empty_key_of_a_tool_is_refused_before_anything_is_recorded(url, run_id):
    async def book(seat: str) -> str:
        """Books a seat."""
        pytest.fail("ran")

    agent = create_agent(
        Scripted(), [book], middleware=[RunlogMiddleware(key=lambda name, args: args.get("order", ""))]
    )
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(runlog.Usage, match="key of book is empty"):
            await agent.ainvoke({"messages": [{"role": "user", "content": "two seats"}]})
        assert (await rl.recover(run_id)).pending == []


@pytest.mark.parametrize("adapter", [RunlogMiddleware, RunlogDurability])
@pytest.mark.parametrize("option", ["only", "repeatable"])
def test_a_text_is_no_list_of_names_of_tools(adapter, option):
    """Each part of a text would be a name: `pay` could run twice."""
    for wrong in ("search_and_pay", b"pay", 5, [5]):
        with pytest.raises(Usage, match=f"{option} is a list of names of tools"):
            adapter(**{option: wrong})
    with pytest.raises(Usage, match="key is a function, not a value of type str"):
        adapter(key="pay")
    adapter(**{option: (name for name in ["pay"])})


async def test_an_agent_of_langchain_outside_of_a_run_raises_unless_it_may_be_plain(url):
    booked = []

    async def book(seat: str) -> str:
        """Books a seat."""
        booked.append(seat)
        return f"booked {seat}"

    asked = {"messages": [{"role": "user", "content": "two seats"}]}
    with pytest.raises(runlog.Usage, match="book was called outside of a run"):
        await create_agent(Scripted(), [book], middleware=[RunlogMiddleware()]).ainvoke(asked)
    assert booked == []
    agent = create_agent(Scripted(), [book], middleware=[RunlogMiddleware(plain_outside=True)])
    await agent.ainvoke(asked)
    assert sorted(booked) == ["1A", "1B"]


async def test_a_repeatable_tool_whose_process_died_runs_again_without_a_decision(url_of_bases, run_id):
    booked, fails = [], [True]

    async def book(seat: str) -> str:
        """Books a seat."""
        if fails:
            raise TimeoutError
        booked.append(seat)
        return f"booked {seat}"

    asked = {"messages": [{"role": "user", "content": "two seats"}]}
    agent = create_agent(Scripted(), [book], middleware=[RunlogMiddleware(repeatable=["book"])])
    async with runlog.connect(url_of_bases) as rl:
        async with rl.run(run_id):
            with pytest.raises(runlog.Unavailable, match="TimeoutError"):
                await agent.ainvoke(asked)
        fails.clear()
        async with rl.run(run_id):
            await agent.ainvoke(asked)
    assert sorted(booked) == ["1A", "1B"]


class Repeats(Scripted):
    """Asks for these sums in turn, each time with the same id."""

    sums: list[list[int]]

    def _generate(self, messages, stop=None, run_manager=None, **_):
        at = sum(isinstance(message, AIMessage) for message in messages)
        sums = self.sums[at] if at < len(self.sums) else []
        calls = [{"name": "transfer", "args": {"to": "ada", "sum": sum}, "id": "call_0"} for sum in sums]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])


async def test_ids_that_a_model_server_repeats_name_different_calls(url, run_id):
    ran = []

    async def transfer(to: str, sum: int) -> str:
        """Transfers money."""
        ran.append(sum)
        return f"transfer {len(ran)}"

    asked = {"messages": [{"role": "user", "content": "pay"}]}
    async with runlog.connect(url) as rl:
        for _ in range(2):
            agent = create_agent(Repeats(sums=[[5], [7], [5]]), [transfer], middleware=[RunlogMiddleware()])
            async with rl.run(run_id):
                messages = (await agent.ainvoke(asked))["messages"]
            assert ran == [5, 7, 5]
            said = [message.content for message in messages if message.type == "tool"]
            assert said == ["transfer 1", "transfer 2", "transfer 3"]
        agent = create_agent(Repeats(sums=[[9, 9]]), [transfer], middleware=[RunlogMiddleware()])
        async with rl.run(run_id):
            with pytest.raises(runlog.Conflict, match="in one message"):
                await agent.ainvoke(asked)
        assert ran == [5, 7, 5]


class Shortens(AgentMiddleware):
    """Removes the first call of a conversation, with its answer, once there are two."""

    def before_model(self, state, runtime):
        messages = state["messages"]
        if sum(isinstance(message, AIMessage) for message in messages) < 2:
            return None
        return {"messages": [RemoveMessage(id=message.id) for message in messages[1:3]]}


async def test_a_call_whose_earlier_messages_were_removed_gets_no_other_result(url, run_id):
    ran = []

    async def transfer(to: str, sum: int) -> str:
        """Transfers money."""
        ran.append(sum)
        return f"transfer {len(ran)}"

    agent = create_agent(Repeats(sums=[[5], [5], [5]]), [transfer], middleware=[RunlogMiddleware(), Shortens()])
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(runlog.Conflict, match="two messages of the model ask for the same call of transfer"):
            await agent.ainvoke({"messages": [{"role": "user", "content": "pay"}]})
    assert ran == [5, 5]


async def test_another_conversation_of_a_handle_gets_no_answer_of_the_first(url, run_id):
    ran = []

    async def transfer(to: str, sum: int) -> str:
        """Transfers money."""
        ran.append(sum)
        return f"transfer {len(ran)}"

    agent = create_agent(Repeats(sums=[[5]]), [transfer], middleware=[RunlogMiddleware()])
    async with runlog.connect(url) as rl, rl.run(run_id) as run:
        asked = {"messages": [{"role": "user", "content": "pay"}]}
        await agent.ainvoke(asked)
        await run.checkpoint([])
        with pytest.raises(runlog.Conflict, match="two conversations"):
            await agent.ainvoke(asked)
    assert ran == [5]


def test_the_same_without_async(url, run_id):
    ran = []

    def transfer(to: str, sum: int) -> str:
        """Transfers money."""
        ran.append(sum)
        return f"transfer {len(ran)}"

    asked = {"messages": [{"role": "user", "content": "pay"}]}
    agent = create_agent(Repeats(sums=[[5], [5]]), [transfer], middleware=[RunlogMiddleware()])
    with runlog.sync.connect(url) as rl:
        for _ in range(2):
            with rl.run(run_id):
                agent.invoke(asked)
            assert ran == [5, 5]
