"""An agent in Python: opens its run, continues from the run's last checkpoint, and works until the model calls no tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import runlog

from . import desk
from .processes import DONE, RECONCILE, append_line
from .trips import Call, Trip


async def work(url: str, port: int, trip: Trip, answers: Path) -> None:
    """Takes the trip's run over and works until it ends. Appends every answer that it gets to `answers`."""
    async with runlog.connect(url, agent="travel-agent") as rl, rl.run(trip.run_id) as run:
        if run.recovery.status != "open":
            return
        messages: list[Any] = list(run.recovery.messages)
        if not messages:
            messages.append({"role": "user", "content": trip.wish()})
            await run.turn("user", trip.wish())
        while True:
            step = trip.next(messages)
            await run.turn("assistant", step.says)
            if not step.calls:
                await run.end()
                return
            heard = await asyncio.gather(*(_act(run, port, trip, call, answers) for call in step.calls))
            calls = [{"tool": call.tool, "arguments": call.arguments, "key": call.key} for call in step.calls]
            messages.append({"role": "assistant", "content": step.says, "calls": calls})
            messages.extend(heard)
            await run.checkpoint(messages, turn=sum(message["role"] == "assistant" for message in messages))


async def _act(run: runlog.Run, port: int, trip: Trip, call: Call, answers: Path) -> dict[str, Any]:
    async def effect(_: runlog.Call) -> Any:
        reply = await desk.ask(port, trip.request(call))
        if reply is None:
            raise runlog.Unknown("the desk did not answer")
        if refused := reply.get("refused"):
            raise runlog.Failed(refused["kind"], refused["message"])
        return reply["ok"]

    try:
        answer = await run.call(call.tool, call.arguments, effect, key=call.key)
        heard = {"result": answer.result}
        append_line(answers, {"run": run.id, "call": answer.call_id, "result": answer.result})
    except runlog.Failed as failed:
        heard = {"error": {"kind": failed.kind, "message": failed.message}}
    return {"role": "tool", "tool": call.tool, "arguments": call.arguments, "heard": heard}


def main(url: str, port: int, trip: Trip, answers: Path) -> int:
    """The process's exit code."""
    try:
        asyncio.run(work(url, port, trip, answers))
        return DONE
    except runlog.ReconcileRequired:
        return RECONCILE
