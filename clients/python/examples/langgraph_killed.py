"""A LangGraph graph that is killed in the middle of a booking, and a second process that continues.

`langgraph_killed.py` starts both and prints their steps. LangGraph runs a node again if it did not record the node's end; the gate
inside the node then decides: the booking has a key, so it is made again under the same key, and the receiver sees that it
is the same one. The node before it does not run again. No model and no network but the server's is needed.
"""

import asyncio
import operator
import os
import signal
import subprocess
import sys
import uuid
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

import runlog
from runlog.langgraph import RunlogSaver

SERVER = os.environ.get("RUNLOG_SERVER", "http://127.0.0.1:7070")


class Trip(TypedDict):
    log: Annotated[list[str], operator.add]


@runlog.tool(key=lambda order: f"order-{order}")
async def book(call: runlog.Call, order: str) -> str:
    print(f"the airline is asked, key {call.idempotency_key}, attempt {call.attempt}", flush=True)
    if call.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)  # the answer never arrives
    return "B-1009"


async def agent(trip: str) -> None:
    async def find(state: Trip) -> Trip:
        print("the node `find` runs", flush=True)
        return {"log": ["found HAT136"]}

    async def reserve(state: Trip) -> Trip:
        return {"log": [f"booked {await book('7')}"]}

    graph = StateGraph(Trip)
    graph.add_node("find", find)
    graph.add_node("reserve", reserve)
    graph.add_edge(START, "find")
    graph.add_edge("find", "reserve")
    graph.add_edge("reserve", END)

    async with (
        RunlogSaver.connect(SERVER, prefix="example/") as saver,
        runlog.connect(SERVER, agent="travel-agent") as rl,
    ):
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": trip}}
        begun = (await compiled.aget_state(config)).tasks
        async with rl.run(f"example-effects/{trip}", on_divergence="allow"):
            result = await compiled.ainvoke(None if begun else {"log": []}, config, durability="sync")
        print(result["log"], flush=True)


if len(sys.argv) > 1:
    asyncio.run(agent(sys.argv[1]))
else:
    trip = str(uuid.uuid4())
    for process in ("first", "second"):
        print(f"the {process} process:", flush=True)
        ended = subprocess.run([sys.executable, __file__, trip], check=False).returncode
        print("it was killed" if ended == -signal.SIGKILL else f"it ended with {ended}", flush=True)
