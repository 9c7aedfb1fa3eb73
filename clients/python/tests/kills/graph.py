"""A LangGraph graph with tools and interrupts, killed at random, and its server; each thread must reach the same state.

    question ─▶ model ─▶ approve (an interrupt before bookings) ─▶ tools (through the gate) ─▶ model ─▶ … ─▶ answer

`scripts/python.sh graph-kills 200` kills 200 times. A worker invokes the graph until its thread is done: with the question,
with the approval, or with nothing, as the thread's state requires. It is forked, killed, and forked again.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

import runlog
from runlog import Fenced
from runlog.langgraph import RunlogSaver

from .processes import DONE, FENCED, STEP, STUCK_AFTER, Forked, Server, append_line, read_lines

LEGS = ("LHR", "OSL", "LIS")
LIFE_MAX = 0.35
"""The maximum life of a worker in seconds, at first. It grows while workers die before they do anything, as on a slow machine."""
GROWTH = 1.1
RECEIVER_ANSWERS_AFTER = 0.01
SERVER_EVERY = (6, 14)


def model(state: MessagesState) -> dict[str, Any]:
    """For each leg: looks for a flight and its weather at once, books it; then answers."""
    said = sum(isinstance(message, AIMessage) for message in state["messages"])
    leg, booking = divmod(said, 2)
    if leg == len(LEGS):
        return {"messages": [AIMessage("You are booked.", id=f"ai-{said}")]}
    to = LEGS[leg]
    names = ("book",) if booking else ("find", "weather")
    calls = [{"name": name, "args": {"to": to}, "id": f"{name}-{to}", "type": "tool_call"} for name in names]
    return {"messages": [AIMessage(f"To {to}.", id=f"ai-{said}", tool_calls=calls)]}


def approve(state: MessagesState) -> dict[str, Any]:
    """Asks before it books."""
    call = state["messages"][-1].tool_calls[0]
    if call["name"] == "book" and interrupt({"book": call["args"]}) != "yes":
        raise AssertionError("it is always approved")
    return {}


def tools(ledger: Path):
    """The node that runs the tools of the last message, all at once."""

    async def effect(call: runlog.Call, name: str, to: str) -> str:
        append_line(ledger, {"key": call.idempotency_key, "attempt": call.attempt})
        # A receiver takes its time, in which its caller can die.
        await asyncio.sleep(RECEIVER_ANSWERS_AFTER)
        return f"{name} {to}: done"

    async def run_tools(state: MessagesState) -> dict[str, Any]:
        run = runlog.current_run.get()

        async def one(call: dict[str, Any]) -> ToolMessage:
            name, to = call["name"], call["args"]["to"]
            answer = await run.call(
                name, call["args"], lambda made: effect(made, name, to), key=f"{run.id}/{call['id']}"
            )
            return ToolMessage(answer.result, tool_call_id=call["id"], id=f"tool-{call['id']}")

        return {"messages": await asyncio.gather(*map(one, state["messages"][-1].tool_calls))}

    return run_tools


def compiled(saver: Any, ledger: Path) -> Any:
    """The graph."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("approve", approve)
    graph.add_node("tools", tools(ledger))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", lambda state: "approve" if state["messages"][-1].tool_calls else END)
    graph.add_edge("approve", "tools")
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


async def work(url: str, thread: str, ledger: Path) -> None:
    """Invokes the graph until the thread is done."""
    config: Any = {"configurable": {"thread_id": thread}}
    async with RunlogSaver.connect(url, prefix="chat/") as saver, runlog.connect(url) as rl:
        graph = compiled(saver, ledger)
        async with rl.run(f"effects/{thread}", on_divergence="allow"):
            while True:
                state = await graph.aget_state(config)
                if not state.values:
                    asked: Any = {"messages": [HumanMessage("three legs, please", id="question")]}
                elif state.interrupts:
                    asked = Command(resume="yes")
                elif state.tasks:
                    # Not `state.next`: it lacks a task whose writes are stored, and whose checkpoint is not.
                    asked = None
                else:
                    return
                await graph.ainvoke(asked, config, durability="sync")


async def final(url: str, thread: str) -> list[Any]:
    """The final state of a thread: its number of open tasks, and all its messages."""
    async with RunlogSaver.connect(url, prefix="chat/") as saver:
        state = await compiled(saver, Path(os.devnull)).aget_state({"configurable": {"thread_id": thread}})
        return [len(state.tasks), [message.model_dump() for message in state.values.get("messages", [])]]


def worker(url: str, thread: str, ledger: Path) -> int:
    """A worker's process. A write of a dead worker may have arrived after it read the thread."""
    try:
        asyncio.run(work(url, thread, ledger))
        return DONE
    except Fenced:
        return FENCED


class Kills:
    """Kills workers of one thread after the other, and the server."""

    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self._folder, self._kills, self._random = folder, kills, random.Random(seed)
        self.seed, self.counts, self.server = seed, Counter[str](), Server(folder)
        self._server_dies_after = self._random.randint(*SERVER_EVERY)
        self._life_max = LIFE_MAX
        self.differences: list[str] = []

    def run(self) -> None:
        """Kills `kills` times, then lets the last thread finish."""
        reference = self._thread("reference", False)
        while self.killed < self._kills:
            self.counts["threads"] += 1
            thread = f"thread-{self.counts['threads']}"
            state = self._thread(thread, True)
            if state != reference:
                self.differences.append(f"{thread} reached {state}, which differs from the undisturbed thread")
            effects = Counter(line["key"] for line in self._lines(thread))
            wanted = {f"effects/{thread}/{name}-{to}" for to in LEGS for name in ("find", "weather", "book")}
            if set(effects) != wanted:
                self.differences.append(f"{thread}: effects {effects}")
            self.counts["effects"] += len(effects)
            self.counts["effects that were repeated under their key"] += sum(count > 1 for count in effects.values())

    @property
    def killed(self) -> int:
        """Processes that were killed."""
        return self.counts["workers killed"] + self.counts["servers killed"]

    def stop(self) -> None:
        """Ends the server."""
        self.server.stop()

    def _lines(self, thread: str) -> list[dict[str, Any]]:
        return read_lines(self._folder / thread)

    def _thread(self, thread: str, killing: bool) -> list[Any]:
        ledger, complaints = self._folder / thread, self._folder / "complaints"
        while True:
            begun = ledger.stat().st_size if ledger.exists() else 0
            process = Forked(partial(worker, self.server.url, thread, ledger), complaints)
            # The last thread ends undisturbed, also on a machine on which no worker ends within its life.
            code = self._watch(process, killing and self.killed < self._kills)
            if code == -9:
                self._adapt(began_an_effect=ledger.exists() and ledger.stat().st_size > begun)
            if code == DONE:
                return asyncio.run(final(self.server.url, thread))
            if code == FENCED:
                self.counts["workers fenced by a late write of a dead one"] += 1
            elif code != -9:
                raise AssertionError(complaints.read_text()[-3000:])

    def _adapt(self, *, began_an_effect: bool) -> None:
        """Lets about every second worker begin an effect before it dies, on slow machines too."""
        self.counts["workers killed after they began an effect"] += began_an_effect
        changed = self._life_max / GROWTH if began_an_effect else self._life_max * GROWTH
        self._life_max = min(max(changed, LIFE_MAX), STUCK_AFTER / 4)

    def _watch(self, process: Forked, killing: bool) -> int:
        """Waits until a worker ends, or kills it. Returns how it ended."""
        now = time.monotonic()
        dies_at = now + (self._random.uniform(0, self._life_max) if killing else STUCK_AFTER)
        server_dies_at = (
            now + self._random.uniform(0, self._life_max) if killing and self._server_dies_after <= 0 else None
        )
        while True:
            if (ended := process.ended()) is not None:
                return ended
            if server_dies_at is not None and time.monotonic() >= server_dies_at:
                self.server.kill()
                self.counts["servers killed"] += 1
                self.server.start()
                self.server.wait()
                server_dies_at, self._server_dies_after = None, self._random.randint(*SERVER_EVERY)
            if time.monotonic() >= dies_at:
                code = process.kill()
                assert killing or code != -9, "a worker did nothing for a minute"
                self.counts["workers killed"] += code == -9
                self._server_dies_after -= 1
                return code
            time.sleep(STEP)
