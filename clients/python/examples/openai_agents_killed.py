"""An agent of the OpenAI Agents SDK that is killed in the middle of a tool call, and a second process that continues. The
model is a script.

The first tool has run and is answered from the journal. The second tool was interrupted and has a key, so it runs
again.
"""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from typing import Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import runlog
from runlog.openai_agents import RunlogSession, tool

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
FIRST = len(sys.argv) > 2 and sys.argv[2] == "first"


def call(name: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=str(uuid.uuid4()), call_id=str(uuid.uuid4()), type="function_call", name=name, arguments=arguments
    )


class ScriptedModel(Model):
    """Answers by the number of results of tools that it is given."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        results = sum(isinstance(item, dict) and item.get("type") == "function_call_output" for item in input)
        text = ResponseOutputText(annotations=[], text="You are booked.", type="output_text")
        steps = [
            call("find", '{"to": "LHR"}'),
            call("book", '{"flight": "HAT136"}'),
            ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message"),
        ]
        return ModelResponse(output=[steps[results]], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@runlog.tool
async def find(call: runlog.Call, to: str) -> str:
    """Finds a flight."""
    print("the tool `find` runs", flush=True)
    return "HAT136"


@runlog.tool(key=lambda flight: f"seat-{flight}")
async def book(call: runlog.Call, flight: str) -> str:
    """Books a flight."""
    print(f"the tool `book` runs, key {call.idempotency_key}, attempt {call.attempt}", flush=True)
    if FIRST:
        os.kill(os.getpid(), signal.SIGKILL)
    return "B-1009"


async def agent(trip: str) -> None:
    booking = Agent(name="booking", model=ScriptedModel(), tools=[tool(find), tool(book)])
    async with runlog.connect(SERVER, agent="travel-agent") as rl, rl.run(f"session/{trip}") as run:
        session = RunlogSession(run)
        # An interrupted turn continues with the messages of the session.
        question: Any = [] if await session.get_items() else "to London"
        result = await Runner.run(booking, question, session=session, run_config=RunConfig(tracing_disabled=True))
        print(result.final_output, len(await session.get_items()), flush=True)


if len(sys.argv) > 1:
    asyncio.run(agent(sys.argv[1]))
else:
    trip = str(uuid.uuid4())
    for process in ("first", "second"):
        print(f"the {process} process:", flush=True)
        ended = subprocess.run([sys.executable, __file__, trip, process], check=False).returncode
        print("it was killed" if ended == -signal.SIGKILL else f"it ended with {ended}", flush=True)
