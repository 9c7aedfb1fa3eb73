"""A session of the OpenAI Agents SDK in a run."""

from __future__ import annotations

import asyncio
import pickle

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import runlog.sync
from conftest import command
from runlog.openai_agents import RunlogSession, raise_gate_errors, tool


def item(n):
    return {"role": "user", "content": f"message {n} " + "x" * 200}


async def test_a_session_returns_its_items_and_writes_each_item_once(url, run_id):
    async with runlog.connect(url) as rl:
        session = RunlogSession(await rl.open(run_id))
        assert await session.get_items() == [] and await session.pop_item() is None
        for n in range(20):
            await session.add_items([item(n)])
        assert await session.get_items(limit=3) == [item(17), item(18), item(19)]
        assert await session.get_items(limit=0) == []
        assert await session.pop_item() == item(19)
        again = RunlogSession(await rl.open(run_id))
        assert await again.get_items() == [item(n) for n in range(19)]
        shown = command(url, "show", run_id, "--raw", "--json").stdout
        assert all(shown.count(f"message {n} ") == 1 for n in range(20))
        await again.clear_session()
        assert await RunlogSession(await rl.open(run_id)).get_items() == []


async def test_sessions_of_one_handle_share_their_items(url, run_id):
    async with runlog.connect(url) as rl:
        run = await rl.open(run_id)
        await RunlogSession(run).add_items([item(1)])
        first, second = RunlogSession(run), RunlogSession(run)
        await asyncio.gather(first.add_items([item(2)]), second.add_items([item(3)]))
        assert await first.get_items() == await second.get_items() == [item(n) for n in (1, 2, 3)]
        assert await first.pop_item() == item(3)
        assert await RunlogSession(await rl.open(run_id)).get_items() == [item(1), item(2)]


async def test_a_session_whose_run_was_taken_over_is_fenced(url, run_id):
    async with runlog.connect(url) as rl:
        old = RunlogSession(await rl.open(run_id))
        await old.add_items([item(1)])
        new = RunlogSession(await rl.open(run_id))
        with pytest.raises(runlog.Fenced):
            await old.add_items([item(2)])
        await new.add_items([item(3)])
        assert await new.get_items() == [item(1), item(3)]


async def test_a_tool_runs_again_in_a_later_turn_but_not_after_an_interrupted_turn(url, run_id):
    calls = []

    async def tick(call):
        calls.append(call.id)
        return len(calls)

    async with runlog.connect(url) as rl:
        run = await rl.open(run_id)
        session = RunlogSession(run)
        assert (await run.call("tick", {}, tick)).result == 1
        await session.add_items([{"type": "function_call_output", "call_id": "1", "output": "1"}])
        assert (await run.call("tick", {}, tick)).result == 2  # its turn is interrupted here
        run = await rl.open(run_id)
        await RunlogSession(run).add_items([item(1)])
        assert (await run.call("tick", {}, tick)).result == 2
        assert (await run.call("tick", {}, tick)).result == 3


async def test_a_repeatable_tool_whose_process_died_runs_again_without_a_decision(url_of_bases, run_id):
    ran = []

    @runlog.tool(repeatable=True)
    async def find_once(call, to: str) -> str:
        ran.append(call.attempt)
        if call.attempt == 1:
            raise TimeoutError
        return "HAT136"

    @function_tool(failure_error_function=None)
    async def find(to: str) -> str:
        """Finds a flight."""
        return await find_once(to)

    async def called():
        context = ToolContext(None, tool_name="find", tool_call_id="1", tool_arguments='{"to": "LHR"}')
        return await find.on_invoke_tool(context, '{"to": "LHR"}')

    async with runlog.connect(url_of_bases) as rl:
        async with rl.run(run_id):
            with pytest.raises(Exception, match="TimeoutError"):
                await called()
        async with rl.run(run_id):
            assert await called() == "HAT136" and ran == [1, 2]


class AsksToPay(Model):
    """A model that asks for one call of `pay`, and then repeats the answer of the tool."""

    def __init__(self, arguments="{}"):
        self.arguments = arguments

    async def get_response(self, *_, input, **__):
        outputs = [of["output"] for of in input if isinstance(of, dict) and of.get("type") == "function_call_output"]
        if outputs:
            text = ResponseOutputText(annotations=[], text=outputs[-1], type="output_text")
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
            return ModelResponse([said], Usage(), None)
        call = ResponseFunctionToolCall(name="pay", arguments=self.arguments, call_id="1", type="function_call")
        return ModelResponse([call], Usage(), None)

    def stream_response(self, *_, **__):
        raise NotImplementedError


async def test_an_error_of_the_gate_reaches_the_caller_of_the_sdk_with_its_own_class(url, run_id):
    @runlog.tool
    async def pay_once(call) -> str:
        raise TimeoutError("the bank did not answer")

    @function_tool(failure_error_function=raise_gate_errors)
    async def pay() -> str:
        """Pays."""
        return await pay_once()

    agent = Agent("payer", model=AsksToPay(), tools=[pay])
    async with runlog.connect(url) as rl, rl.run(run_id):
        with pytest.raises(runlog.ReconcileRequired, match="the bank did not answer") as error:
            await Runner.run(agent, "pay")
    again = pickle.loads(pickle.dumps(error.value))
    assert (again.call, str(again), type(again)) == (error.value.call, str(error.value), type(error.value))


@runlog.tool(name="pay", failed_on=LookupError)
async def pay_to(call: runlog.Call, to: str, sum: int = 5) -> str:
    """Pays.

    Args:
        to: The name of the receiver.
    """
    if to == "stranger":
        raise LookupError("no such account")
    if to == "lost":
        raise TimeoutError("the bank did not answer")
    return f"paid {sum} to {to}"


async def test_a_recorded_tool_becomes_a_tool_of_the_sdk_whose_gate_errors_reach_the_caller(url, run_id):
    pay = tool(pay_to)
    assert (pay.name, pay.description) == ("pay", "Pays.")
    assert list(pay.params_json_schema["properties"]) == ["to", "sum"]
    assert pay.params_json_schema["properties"]["to"]["description"] == "The name of the receiver."

    def run_with(arguments, **options):
        return Runner.run(Agent("payer", model=AsksToPay(arguments), tools=[tool(pay_to, **options)]), "pay")

    async with runlog.connect(url) as rl, rl.run(run_id):
        assert (await run_with('{"to": "ada", "sum": 7}')).final_output == "paid 7 to ada"
        # The model may correct arguments that do not fit.
        assert "The tool did nothing" in (await run_with("{}")).final_output
        assert "no such account" in (await run_with('{"to": "stranger"}')).final_output
        said = await run_with('{"to": "stranger"}', failure_error_function=lambda _, error: f"refused: {error.message}")
        assert said.final_output == "refused: no such account"
        for _ in range(2):
            with pytest.raises(runlog.ReconcileRequired):
                await run_with('{"to": "lost"}', failure_error_function=lambda *_: "never")


def test_a_plain_recorded_tool_becomes_a_tool_of_the_sdk(url, run_id):
    @runlog.tool
    def pay(call, to: str) -> str:
        """Pays."""
        return f"paid {to}"

    with runlog.sync.connect(url) as rl, rl.run(run_id):
        agent = Agent("payer", model=AsksToPay('{"to": "ada"}'), tools=[tool(pay)])
        assert asyncio.run(Runner.run(agent, "pay")).final_output == "paid ada"


def test_a_session_of_anything_but_an_async_run_is_refused(url, run_id):
    with runlog.sync.connect(url) as rl, rl.run(run_id) as run:
        for wrong in (run, run_id):
            with pytest.raises(runlog.Usage, match="a session needs a run of `async with"):
                RunlogSession(wrong)
