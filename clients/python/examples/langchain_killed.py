"""A LangChain agent that is killed in the middle of a tool call, and a second process that continues. The model is a script.

The first tool has run and is not run again. The second tool was interrupted and has a key, so it runs again under that
key.
"""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import runlog
from runlog.langchain import RunlogMiddleware
from runlog.langgraph import RunlogSaver

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")


class ScriptedModel(BaseChatModel):
    """Answers by the number of messages that it is given."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        steps: dict[int, AIMessage] = {
            1: AIMessage("", tool_calls=[{"name": "find", "args": {"to": "LHR"}, "id": "call-1"}]),
            3: AIMessage("", tool_calls=[{"name": "book", "args": {"flight": "HAT136"}, "id": "call-2"}]),
            5: AIMessage("You are booked."),
        }
        print(f"the model is asked with {len(messages)} messages", flush=True)
        return ChatResult(generations=[ChatGeneration(message=steps[len(messages)])])


async def agent(trip: str, first: bool) -> None:
    async def find(to: str) -> str:
        """Finds a flight."""
        print("the tool `find` runs", flush=True)
        return "HAT136"

    async def book(flight: str) -> str:
        """Books a flight."""
        print("the tool `book` runs", flush=True)
        if first:
            os.kill(os.getpid(), signal.SIGKILL)
        return "B-1009"

    def key(tool: str, args: dict[str, Any]) -> str | None:
        return f"{trip}-{args['flight']}" if tool == "book" else None

    async with (
        RunlogSaver.connect(SERVER, prefix="example/") as saver,
        runlog.connect(SERVER, agent="travel-agent") as rl,
    ):
        compiled = create_agent(
            ScriptedModel(), [find, book], middleware=[RunlogMiddleware(key=key)], checkpointer=saver
        )
        config: Any = {"configurable": {"thread_id": trip}}
        question = {"messages": [{"role": "user", "content": "to London"}]} if first else None
        async with rl.run(f"example-effects/{trip}"):
            result = await compiled.ainvoke(question, config, durability="sync")
        print([message.content for message in result["messages"]], flush=True)


if len(sys.argv) > 1:
    asyncio.run(agent(sys.argv[1], sys.argv[2] == "first"))
else:
    trip = str(uuid.uuid4())
    for process in ("first", "second"):
        print(f"the {process} process:", flush=True)
        ended = subprocess.run([sys.executable, __file__, trip, process], check=False).returncode
        print("it was killed" if ended == -signal.SIGKILL else f"it ended with {ended}", flush=True)
