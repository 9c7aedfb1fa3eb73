"""An agent of Pydantic AI that is killed in the middle of a tool call, and a second process that continues. The model is a
script.

A recorded response of the model is not requested again, the first tool is answered from the journal, and the second one, which was
interrupted and has a key, runs again under that key.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import runlog
from runlog.pydantic_ai import RunlogDurability

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")
FIRST = len(sys.argv) > 2 and sys.argv[2] == "first"


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answers by the number of messages that it is given."""
    print(f"the model is asked with {len(messages)} messages", flush=True)
    steps = {
        1: ToolCallPart("find", {"to": "LHR"}),
        3: ToolCallPart("book", {"flight": "HAT136"}),
        5: TextPart("You are booked: B-1009."),
    }
    return ModelResponse(parts=[steps[len(messages)]])


def key(tool: str, args: dict[str, Any]) -> str | None:
    return f"seat-{args['flight']}" if tool == "book" else None


agent = Agent(FunctionModel(scripted), name="booking", capabilities=[RunlogDurability(key=key)])


@agent.tool_plain
async def find(to: str) -> str:
    """Finds a flight."""
    print("the tool `find` runs", flush=True)
    return "HAT136"


@agent.tool_plain
async def book(flight: str) -> str:
    """Books a flight."""
    print("the tool `book` runs", flush=True)
    if FIRST:
        os.kill(os.getpid(), signal.SIGKILL)
    return "B-1009"


async def main(trip: str) -> None:
    async with runlog.connect(SERVER, agent="travel-agent") as rl, rl.run(f"pydantic-ai/{trip}") as run:
        result = await agent.run("to London")
        # From here on the same question is a new question.
        await run.checkpoint(json.loads(result.all_messages_json()))
        print(result.output, flush=True)


if len(sys.argv) > 1:
    asyncio.run(main(sys.argv[1]))
else:
    trip = str(uuid.uuid4())
    for process in ("first", "second"):
        print(f"the {process} process:", flush=True)
        ended = subprocess.run([sys.executable, __file__, trip, process], check=False).returncode
        print("it was killed" if ended == -signal.SIGKILL else f"it ended with {ended}", flush=True)
