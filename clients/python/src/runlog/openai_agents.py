"""`RunlogSession`: the conversation of an OpenAI Agents SDK session, in the run that its tools are recorded in. `tool`: a
`@runlog.tool` as a tool of the SDK.

The items are the messages of the run's checkpoints: each is written once, and a checkpoint covers the calls that it
contains. So a call in a later turn with the same arguments is new, and the journal answers a call of an interrupted
turn.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast
from weakref import WeakKeyDictionary

from agents import FunctionTool, RunContextWrapper, function_tool
from agents.exceptions import AgentsException, ModelBehaviorError
from agents.items import TResponseInputItem
from agents.memory import SessionABC, SessionSettings
from agents.tool import ToolErrorFunction

from ._json import Json
from ._texts import type_name
from ._tool import AsyncTool, SyncTool
from ._values import to_json
from .aio import Run
from .errors import Error, Failed, Usage

_MEMBER = "openai_agents_session"


def raise_gate_errors(context: RunContextWrapper[Any], error: Exception) -> Any:
    """Passes errors of the gate on: `@function_tool(failure_error_function=raise_gate_errors)`.

    The SDK replaces any exception of a tool by its own `UserError`, except an `AgentsException`. So a `runlog.Error` is raised as
    its own class and as `AgentsException`. Other exceptions are raised as with `failure_error_function=None`."""
    if isinstance(error, Error):
        raise _rebuilt_for_agents(type(error), error.args, error.__dict__) from error
    return None


@cache
def _class_for_agents(kind: type[Error]) -> type[Error]:
    def reduce(error: Error) -> tuple[Any, ...]:
        # Without the SDK's details of its run, which cannot be pickled.
        kept = {name: member for name, member in error.__dict__.items() if name != "run_data"}
        return _rebuilt_for_agents, (kind, error.args, kept)

    members = {"__reduce__": reduce, "__module__": kind.__module__, "run_data": None}
    return cast("type[Error]", type(kind.__name__, (kind, AgentsException), members))


def _rebuilt_for_agents(kind: type[Error], args: tuple[Any, ...], members: Mapping[str, Any]) -> Error:
    made = _class_for_agents(kind)
    error = made.__new__(made, *args)
    error.__dict__.update(members)
    return error


def tool(
    recorded: AsyncTool[..., Any] | SyncTool[..., Any],
    *,
    failure_error_function: ToolErrorFunction | None = None,
    **options: Any,
) -> FunctionTool:
    """Makes a tool of the SDK from a `@runlog.tool`. Its errors of the gate reach the caller of `Runner.run`.

    `options` are those of `function_tool`. The model reads about arguments that do not fit, and about `Failed`, with which the tool
    itself says that its effect did not happen; `failure_error_function` may word that."""

    async def on_error(context: RunContextWrapper[Any], error: Exception) -> Any:
        if not isinstance(error, ModelBehaviorError | Failed):
            return raise_gate_errors(context, error)
        if failure_error_function is None:
            # The SDK's own answer hides the reason, and asks to try again.
            return f"The tool did nothing: {error}"
        answer = failure_error_function(context, error)
        return await answer if inspect.isawaitable(answer) else answer

    async def call_async(*args: Any, **arguments: Any) -> Any:
        return await cast("AsyncTool[..., Any]", recorded)(*args, **arguments)

    def call_plain(*args: Any, **arguments: Any) -> Any:
        return cast("SyncTool[..., Any]", recorded)(*args, **arguments)

    function = cast("Any", call_async if isinstance(recorded, AsyncTool) else call_plain)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__signature__"):
        setattr(function, name, getattr(recorded, name))
    # The SDK resolves the annotations by the function's module.
    function.__wrapped__ = recorded.function
    function.__annotations__ = {
        name: parameter.annotation
        for name, parameter in recorded.__signature__.parameters.items()
        if parameter.annotation is not parameter.empty
    }
    return function_tool(function, failure_error_function=on_error, **options)


@dataclass(slots=True)
class _Conversation:
    """The items of a handle, which all its sessions share: `run.recovery` stays as of the claim."""

    items: list[Json]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


_conversations: WeakKeyDictionary[Run, _Conversation] = WeakKeyDictionary()


class RunlogSession(SessionABC):
    """A session on a run that this process claimed: `RunlogSession(run)` inside `async with rl.run(id) as run`.

    All sessions of a handle have the same items, so that each turn may make its own.
    The run belongs to the session: nothing else may take checkpoints of it. Tools that are called in its turns go through
    the gate of the same run: `@function_tool` around a `@runlog.tool`."""

    def __init__(self, run: Run, session_settings: SessionSettings | None = None) -> None:
        if not isinstance(run, Run):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Usage(f"a session needs a run of `async with rl.run(…)`, not a value of type {type_name(run)}")
        self.session_id = run.id
        self.session_settings = session_settings
        self._run = run
        found = _conversations.get(run)
        if found is None:
            found = _conversations[run] = _Conversation(list(run.recovery.messages))
        self._conversation = found

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items, oldest first; with a limit, the latest items."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        async with self._conversation.lock:
            items = self._conversation.items
            kept = items if limit is None else items[len(items) - min(limit, len(items)) :]
            return cast("list[TResponseInputItem]", list(kept))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds items, which are in the log when this returns. Raises `Fenced` if another process has the run."""
        added = [to_json(cast(object, item)) for item in cast("Sequence[Any]", items)]
        if added:
            async with self._conversation.lock:
                await self._write([*self._conversation.items, *added])

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the latest item and returns it."""
        async with self._conversation.lock:
            if not self._conversation.items:
                return None
            last = self._conversation.items[-1]
            await self._write(self._conversation.items[:-1])
            return cast("TResponseInputItem", last)

    async def clear_session(self) -> None:
        """Removes all items from answers. Their bytes stay in the log."""
        async with self._conversation.lock:
            if self._conversation.items:
                await self._write([])

    async def _write(self, items: list[Json]) -> None:
        await self._run.checkpoint(items, {_MEMBER: 1})
        self._conversation.items = items
