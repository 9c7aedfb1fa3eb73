"""An agent of Pydantic AI in a run: recorded requests to the model and recorded tool calls are not repeated."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    FunctionToolset,
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelRetry,
    RunContext,
    TextPart,
    Tool,
    ToolCallPart,
)
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import DynamicToolset
from pydantic_core import PydanticSerializationError

import runlog.sync
from conftest import command
from faults import AsyncFaults
from runlog import Config
from runlog.aio import Runlog
from runlog.pydantic_ai import MODEL, RunlogDurability
from values import WORDS


class Travel:
    """An agent that finds, books two seats at once, and says so."""

    def __init__(self, **options):
        self.asked, self.effects = [], []
        self.agent = Agent(FunctionModel(self.model), name="travel", capabilities=[RunlogDurability(**options)])
        self.agent.tool_plain(self.find)
        self.agent.tool_plain(self.book)

    def model(self, messages, info):
        self.asked.append(len(messages))
        parts = {
            0: [ToolCallPart("find", {"to": "LHR"})],
            1: [ToolCallPart("book", {"seat": "1A"}), ToolCallPart("book", {"seat": "1B"})],
            2: [TextPart("booked")],
        }
        return ModelResponse(parts=parts[len(messages) % 6 // 2])

    async def find(self, to: str) -> str:
        self.effects.append("find")
        return "HAT136"

    async def book(self, seat: str) -> str:
        self.effects.append(seat)
        return f"booked {seat}"


ALL = ["1A", "1B", "find"]


def name_of(result):
    """The part of an agent run's id that is the same in every process."""
    return result.run_id.rpartition("@")[0]


def calls(url, run_id):
    shown = command(url, "show", run_id, "--raw", "--json").stdout
    payloads = [json.loads(line)["payload"] for line in shown.splitlines()]
    return [payload["tool_name"] for payload in payloads if payload["type"] == "tool_call_requested"]


async def test_a_resumed_process_repeats_no_recorded_request_or_effect(url, run_id):
    first, second = Travel(), Travel()
    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            said = await first.agent.run("to London")
        async with rl.run(run_id):
            again = await second.agent.run("to London")
    assert (first.asked, sorted(first.effects)) == ([1, 3, 5], ALL)
    assert (second.asked, second.effects) == ([], [])
    assert again.output == said.output == "booked" and again.conversation_id == said.conversation_id
    # An id of this process: Pydantic AI does not continue messages that already have the id.
    assert name_of(again) == name_of(said) and again.run_id != said.run_id
    ids = [
        [part.tool_call_id for m in r.all_messages() for part in m.parts if part.part_kind == "tool-call"]
        for r in (said, again)
    ]
    assert ids[0] == ids[1] and len(set(ids[0])) == 3
    assert sorted(calls(url, run_id)) == ["book", "book", "find", MODEL, MODEL, MODEL]


@pytest.mark.parametrize("after", [False, True], ids=["before a request", "after its answer"])
async def test_an_agent_cancelled_at_any_request_continues_in_the_same_and_the_next_process(url, run_id, after):
    at = cancelled = 0
    while True:
        at += 1
        travel, faults = Travel(), AsyncFaults(Config(url))
        async with Runlog(Config(url), faults) as rl:
            run = await rl.open(f"{run_id}-{at}")
            travel.agent = Agent(FunctionModel(travel.model), name="travel", capabilities=[RunlogDurability(run)])
            travel.agent.tool_plain(travel.find)
            travel.agent.tool_plain(travel.book)
            faults.arm(at, after)
            task = asyncio.ensure_future(travel.agent.run("to London"))
            try:
                await task
            except asyncio.CancelledError:
                cancelled += 1
                assert (await travel.agent.run("to London")).output == "booked"
            requests, faults.at = faults.count, None
            # The model may have answered a request whose answer was not recorded yet; an effect is not made twice.
            assert sorted(travel.effects) == ALL and travel.asked[0] == 1 and travel.asked[-1] == 5
            assert (await rl.recover(run.id)).pending == []
            if requests < at:
                break
            next_one = Travel()
            async with rl.run(run.id):
                assert (await next_one.agent.run("to London")).output == "booked"
            assert (next_one.asked, next_one.effects) == ([], [])
    assert cancelled == at - 1 >= 12


async def test_a_tool_that_may_have_happened_is_not_called_again_without_a_key(url, run_id):
    class Breaks(Travel):
        async def book(self, seat: str) -> str:
            self.effects.append(seat)
            raise TimeoutError("the airline did not answer")

    broken = Breaks()
    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            with pytest.raises(runlog.ReconcileRequired):
                await broken.agent.run("to London")
        before = list(broken.effects)
        for travel in (Travel(), broken):
            async with rl.run(run_id) as run:
                assert run.pending
                with pytest.raises(runlog.ReconcileRequired):
                    await travel.agent.run("to London")
                assert travel.effects == [] or travel.effects == before


async def test_a_tool_that_failed_for_good_or_asks_the_model_to_retry_is_recorded(url, run_id):
    class Refuses(Travel):
        async def find(self, to: str) -> str:
            self.effects.append("find")
            raise ModelRetry("no such airport")

        async def book(self, seat: str) -> str:
            raise LookupError("sold out")

    refusing = Refuses(failed_on=(LookupError,))
    async with runlog.connect(url) as rl:
        for _ in range(2):
            async with rl.run(run_id) as run:
                assert run.pending == []
                with pytest.raises(runlog.Failed, match="sold out"):
                    await refusing.agent.run("to London")
        assert refusing.asked == [1, 3] and refusing.effects == ["find"]


async def test_a_failing_model_raises_its_own_error_and_is_called_again(url, run_id):
    class Unsteady(Travel):
        def model(self, messages, info):
            if not self.asked:
                self.asked.append(0)
                raise ConnectionError("try later")
            return super().model(messages, info)

    unsteady = Unsteady()
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(ConnectionError):
            await unsteady.agent.run("to London")
        assert (await unsteady.agent.run("to London")).output == "booked"
    assert unsteady.asked == [0, 1, 3, 5] and sorted(unsteady.effects) == ALL


async def test_another_question_is_refused_until_a_checkpoint_and_then_a_new_one(url, run_id):
    travel = Travel()
    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            first = await travel.agent.run("to London")
        async with rl.run(run_id) as run:
            with pytest.raises(runlog.Conflict, match="recorded with another message"):
                await travel.agent.run("to Paris")
            assert len(travel.effects) == 3
            await run.checkpoint(json.loads(first.all_messages_json()))
            second = await travel.agent.run("to London", message_history=first.all_messages())
        assert len(travel.effects) == 6 and travel.asked == [1, 3, 5, 7, 9, 11]
        async with rl.run(run_id):
            again = await travel.agent.run("to London", message_history=first.all_messages())
        assert name_of(again) == name_of(second) != name_of(first) and len(travel.effects) == 6


async def test_an_agent_continues_after_checkpoints_in_the_middle_of_it(url, run_id):
    class Saving(Travel):
        """Takes a checkpoint in the middle of each request, of the trips that are booked."""

        killed = False

        async def model(self, messages, info):
            await self.run.checkpoint(self.booked)
            response = super().model(messages, info)
            if self.killed and len(self.asked) == 3:
                raise ConnectionError("killed")
            return response

        async def book_two(self, run):
            self.run, self.booked = run, run.recovery.messages
            for trip in ("to London", "to Paris")[len(self.booked) :]:
                self.booked = [*self.booked, (await self.agent.run(trip)).output]

    first, second, third, fourth = Saving(), Saving(), Saving(), Saving()
    first.killed = True
    async with runlog.connect(url) as rl:
        async with rl.run(run_id) as run:
            with pytest.raises(ConnectionError):
                await first.book_two(run)
        for travel in (second, third):
            async with rl.run(run_id) as run:
                await travel.book_two(run)
                assert travel.booked == ["booked", "booked"]
        assert (first.asked, second.asked, third.asked) == ([1, 3, 5], [5, 1, 3, 5], [])
        assert sorted(first.effects + second.effects + third.effects) == sorted(ALL * 2)
        async with rl.run(run_id) as run:
            # No agent runs now, so that its next run is a new run.
            await run.checkpoint([])
            await fourth.book_two(run)
            assert fourth.asked == [1, 3, 5]


async def test_agents_that_run_at_once_and_agents_within_tools(url, run_id):
    inner = Travel()
    outer = Agent(
        FunctionModel(
            lambda messages, info: ModelResponse(
                parts=[ToolCallPart("ask", {"to": "LHR"}) if len(messages) == 1 else TextPart("done")]
            )
        ),
        name="outer",
        capabilities=[RunlogDurability()],
    )

    @outer.tool_plain
    async def ask(to: str) -> str:
        return (await inner.agent.run(f"to {to}")).output

    async with runlog.connect(url) as rl:
        for _ in range(2):
            async with rl.run(run_id):
                answers = await asyncio.gather(outer.run("one"), outer.run("two"), inner.agent.run("three"))
                assert [answer.output for answer in answers] == ["done", "done", "booked"]
        async with rl.run(f"{run_id}-2"):
            # One that came to nothing before it began leaves its number to the next.
            durability = RunlogDurability()
            names = {durability.get_default_run_id().rpartition("@")[0] for _ in range(2)}
            assert names == {f"{run_id}-2:start:1"}
    # The agent within the tool is its effect: twice, and once by itself.
    assert len(inner.effects) == 9
    assert sorted(calls(url, run_id)) == sorted([MODEL] * 7 + ["ask"] * 2 + ["find", "book", "book"])
    with pytest.raises(runlog.Usage):
        await outer.run("outside of a run")


async def test_what_is_not_to_be_recorded_is_called_plainly(url, run_id):
    toolset = FunctionToolset(id="clock")
    ticks = []

    @toolset.tool_plain(metadata={"runlog": False})
    async def tick() -> int:
        ticks.append(1)
        return len(ticks)

    def model(messages, info):
        return ModelResponse(parts=[ToolCallPart("tick", {}) if len(messages) == 1 else TextPart("done")])

    agent = Agent(FunctionModel(model), name="a", toolsets=[toolset], capabilities=[RunlogDurability()])
    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            await agent.run("what time is it?")
        assert calls(url, run_id) == [MODEL, MODEL] and len(ticks) == 1
        # It is called again, and says something else: the conversation is another one.
        async with rl.run(run_id):
            with pytest.raises(runlog.Conflict):
                await agent.run("what time is it?")


async def test_tools_of_a_dynamic_toolset_and_validators_of_arguments_run_once(url, run_id):
    ran, validated = [], []

    def clock(ctx):
        toolset = FunctionToolset(id="clock")

        @toolset.tool_plain
        def tick() -> int:
            ran.append("tick")
            return 1

        return toolset

    async def negate(a: int) -> int:
        ran.append(a)
        return -a

    def check(ctx: RunContext, a: int) -> None:
        validated.append(a)
        if a < 0:
            raise ModelRetry("a negative number")

    def model(messages, info):
        steps = [("tick", {}), ("negate", {"a": -5}), ("negate", {"a": 5})]
        at = len(messages) // 2
        return ModelResponse(parts=[ToolCallPart(*steps[at]) if at < 3 else TextPart("done")])

    numbers = FunctionToolset([Tool(negate, args_validator=check)], id="numbers")
    toolsets = [DynamicToolset(clock, id="dynamic"), numbers]
    agent = Agent(FunctionModel(model), name="a", toolsets=toolsets, capabilities=[RunlogDurability()])
    async with runlog.connect(url) as rl:
        for _ in range(2):
            async with rl.run(run_id):
                assert (await agent.run("count")).output == "done"
            assert ran == ["tick", 5] and validated == [-5, 5]


async def test_ids_that_a_model_server_repeats_name_different_calls(url, run_id):
    ran, validated = [], []

    def check(ctx: RunContext, to: str, sum: int) -> None:
        validated.append((to, sum))
        if sum > 100:
            raise ModelRetry("too much")

    async def transfer(to: str, sum: int) -> str:
        ran.append((to, sum))
        return f"transfer {len(ran)}"

    def model(messages, info):
        at, sums = len(messages) // 2, (5, 500, 5, 7)
        if at == len(sums):
            texts = [part.content for of in messages for part in of.parts if part.part_kind == "tool-return"]
            return ModelResponse(parts=[TextPart(", ".join(texts))])
        return ModelResponse(parts=[ToolCallPart("transfer", {"to": "ada", "sum": sums[at]}, tool_call_id="call_0")])

    tools = [FunctionToolset([Tool(transfer, args_validator=check)], id="bank")]
    agent = Agent(FunctionModel(model), name="a", toolsets=tools, capabilities=[RunlogDurability()])
    async with runlog.connect(url) as rl:
        for _ in range(2):
            async with rl.run(run_id):
                assert (await agent.run("pay")).output == "transfer 1, too much, transfer 2, transfer 3"
                # Another conversation in the same run, whose call the journal would answer.
                with pytest.raises(runlog.Conflict, match=r"two messages of the model .* with the same id 'call_0'"):
                    await agent.run("pay again")
            assert ran == [("ada", 5), ("ada", 5), ("ada", 7)]


def repeating(*asked):
    """A model that asks for these arguments of `transfer` in turn, each time with the same id, and then lists the answers."""

    def model(messages, info):
        # Counted by the answers of tools, because messages may have been removed.
        texts = [part.content for of in messages for part in of.parts if part.part_kind == "tool-return"]
        at = int(texts[-1].split()[-1]) if texts else 0
        if at >= len(asked):
            return ModelResponse(parts=[TextPart(", ".join(texts))])
        return ModelResponse(parts=[ToolCallPart("transfer", args, tool_call_id="call_0") for args in asked[at]])

    return FunctionModel(model)


async def test_arguments_that_are_equal_after_their_validation_name_different_calls(url, run_id):
    ran = []

    async def transfer(to: str, sum: int = 5) -> str:
        ran.append((to, sum))
        return f"transfer {len(ran)}"

    model = repeating([{"to": "ada"}], [{"to": "ada", "sum": 5}], [{"to": "ada", "sum": "5"}])
    async with runlog.connect(url) as rl:
        for _ in range(2):
            agent = Agent(model, name="a", tools=[transfer], capabilities=[RunlogDurability()])
            async with rl.run(run_id):
                assert (await agent.run("pay")).output == "transfer 1, transfer 2, transfer 3"
            assert ran == [("ada", 5)] * 3


async def test_a_call_whose_earlier_messages_were_removed_gets_no_other_result_or_verdict(url, run_id):
    ran, validated = [], []

    def check(ctx: RunContext, to: str) -> None:
        validated.append(to)

    async def transfer(to: str) -> str:
        ran.append(to)
        return f"transfer {len(ran)}"

    def keep_the_last(messages):
        return messages[:1] + messages[-2:] if len(messages) > 3 else messages

    model = repeating(*[[{"to": "ada"}]] * 3)
    tools = [FunctionToolset([Tool(transfer, args_validator=check)], id="bank")]
    capabilities = [RunlogDurability(), ProcessHistory(keep_the_last)]
    async with runlog.connect(url) as rl:
        for _ in range(2):
            agent = Agent(model, name="a", toolsets=tools, capabilities=capabilities)
            async with rl.run(run_id):
                with pytest.raises(runlog.Conflict, match=r"messages between them were removed"):
                    await agent.run("pay")
            assert ran == ["ada"] * 2 and validated == ["ada"] * 3


async def test_a_streamed_answer_is_the_same_as_one_that_is_not(url, run_id):
    travel = Travel()

    async def streamed(messages, info):
        yield "booked"

    model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("booked")]), stream_function=streamed)
    agent = Agent(model, name="a", capabilities=[RunlogDurability()])
    async with runlog.connect(url) as rl:
        async with rl.run(run_id), agent.run_stream("to London") as stream:
            assert await stream.get_output() == "booked"
        async with rl.run(run_id):
            assert (await agent.run("to London")).output == "booked"
        async with rl.run(run_id), agent.run_stream("to London") as stream:
            assert await stream.get_output() == "booked"
    assert calls(url, run_id) == [MODEL] and travel.asked == []


async def test_an_empty_key_of_a_tool_is_refused_before_anything_is_recorded(url, run_id):
    travel = Travel(key=lambda name, args: args.get("order", ""))
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(runlog.Usage, match="key of find is empty"):
            await travel.agent.run("to London")
        assert (await rl.recover(run_id)).pending == [] and travel.effects == []
    assert calls(url, run_id) == [MODEL]


def test_a_run_of_the_sync_client_is_refused(url, run_id):
    travel = Travel()
    with runlog.sync.connect(url) as rl, rl.run(run_id), pytest.raises(runlog.Usage):
        asyncio.run(travel.agent.run("to London"))


async def test_an_agent_of_pydantic_ai_outside_of_a_run_raises_unless_it_may_be_plain(url):
    travel = Travel()
    with pytest.raises(runlog.Usage, match="agent was run outside of a run"):
        await travel.agent.run("to London")
    assert travel.asked == travel.effects == []
    travel = Travel(plain_outside=True)
    await travel.agent.run("to London")
    assert sorted(travel.effects) == ["1A", "1B", "find"]


async def test_a_repeatable_tool_whose_process_died_runs_again_without_a_decision(url_of_bases, run_id):
    class Breaks(Travel):
        async def find(self, to: str) -> str:
            raise TimeoutError

    async with runlog.connect(url_of_bases) as rl:
        async with rl.run(run_id):
            with pytest.raises(runlog.Unavailable, match="TimeoutError"):
                await Breaks(repeatable=["find"]).agent.run("to London")
        async with rl.run(run_id):
            travel = Travel(repeatable=["find"])
            await travel.agent.run("to London")
    assert sorted(travel.effects) == ALL


class Sheet:
    """Has no JSON."""


async def test_a_set_is_an_argument_and_a_result_without_json_ends_its_call(url, run_id):
    ran = []

    async def mail(to: set[str]) -> Any:
        ran.append(to)
        return Sheet()

    def model(messages, info):
        return ModelResponse(
            parts=[ToolCallPart("mail", {"to": WORDS}, "call-1")] if len(messages) == 1 else [TextPart("sent")]
        )

    def agent():
        return Agent(FunctionModel(model), name="mailer", capabilities=[RunlogDurability()], tools=[mail])

    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            with pytest.raises(PydanticSerializationError, match="Sheet"):
                await agent().run("to all")
            assert (await rl.recover(run_id)).pending == []
        async with rl.run(run_id):
            with pytest.raises(runlog.ResultNotRecorded, match="Sheet"):
                await agent().run("to all")
    assert ran == [set(WORDS)]
    shown = command(url, "show", run_id, "--raw", "--json").stdout
    payloads = [json.loads(line)["payload"] for line in shown.splitlines()]
    [asked] = [p["arguments"]["args"] for p in payloads if p.get("tool_name") == "mail"]
    assert asked == {"to": sorted(WORDS, key=lambda word: json.dumps(word, ensure_ascii=False))}


async def test_an_approval_is_answered_by_the_next_process_although_no_checkpoint_was_taken(url, run_id):
    charged = []

    def model(messages, info):
        last = messages[-1].parts[-1]
        done = last.part_kind == "tool-return"
        return ModelResponse(
            parts=[TextPart(f"{last.content}") if done else ToolCallPart("charge", {"order": 7}, "c1")]
        )

    def agent():
        made = Agent(
            FunctionModel(model),
            name="shop",
            capabilities=[RunlogDurability()],
            output_type=[str, DeferredToolRequests],
        )

        @made.tool_plain(requires_approval=True)
        async def charge(order: int) -> str:
            charged.append(order)
            return "charged"

        return made

    answer = DeferredToolResults(approvals={"c1": True})
    async with runlog.connect(url) as rl:
        async with rl.run(run_id):
            asked = await agent().run("charge 7")
        assert isinstance(asked.output, DeferredToolRequests)
        history = ModelMessagesTypeAdapter.validate_json(asked.all_messages_json())
        said = []
        # The second of these processes dies after its answer, and the third makes the same call.
        for _ in range(2):
            async with rl.run(run_id):
                said.append(await agent().run(message_history=history, deferred_tool_results=answer))
        async with rl.run(run_id):
            # A process that makes the first call again is answered it, too.
            again = await agent().run("charge 7")
            assert isinstance(again.output, DeferredToolRequests)
            said.append(await agent().run(message_history=again.all_messages(), deferred_tool_results=answer))
    assert [one.output for one in said] == ["charged"] * 3 and charged == [7]
    # Each result has two new messages: the answer to the approval, and the response of the model.
    assert [len(one.new_messages()) for one in said] == [2, 2, 2]
    assert len({one.conversation_id for one in (asked, *said)}) == 1
