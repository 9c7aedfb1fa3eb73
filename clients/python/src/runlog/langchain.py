"""`RunlogMiddleware`: the tools of a LangChain agent go through the gate.

The model's id of a call and its arguments identify the call. So a graph that runs its tools again, after a crash or an
interruption in the same process, gets the recorded answers. Run the agent with `durability="sync"`: then its checkpoint
has the model's message before a tool runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import AgentState, ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

from . import aio, sync
from ._checks import check_function, tool_names
from ._effect import Answer, Call
from ._ends import Ends, Kinds
from ._json import Json, encode
from ._model_calls import AskingMessages, ModelCall, with_number
from ._tool import current_run, no_run_error
from ._values import Unrecordable, to_json
from .errors import Invalid, Usage
from .langgraph._serde import Allowed, StrictSerializer
from .langgraph._store import dump, load

ToolAnswer = ToolMessage | Command[Any]
_MEMBERS = {"content", "status", "name"}
_asking_messages = AskingMessages()


class RunlogMiddleware(AgentMiddleware[AgentState[Any], Any]):
    """Runs the tools of an agent through the gate of the given run, or of the run of the enclosing `with rl.run(…)`.

    * `key`: the idempotency key of a tool call, from its name and its arguments; `None` for a tool without one.
    * `only`: the names of tools to record; others are called plainly. Default: all.
    * `repeatable`: the names of tools that may run any number of times, such as tools that only read. See `Run.call`.
    * `failed_on`: exceptions after which the effect did not happen and will not. After any other exception it may have happened.
    * `allow`: types that artifacts and commands of tools may have, as in `RunlogSaver`. A value of another type
      raises `TypeNotAllowed`. The call has then ended without a result, and the same call raises `ResultNotRecorded`.
    * `plain_outside`: outside of a run call tools plainly, without a record. Default: raise `Usage`.
    """

    def __init__(
        self,
        run: aio.Run | sync.Run | None = None,
        *,
        key: Callable[[str, dict[str, Any]], str | None] | None = None,
        only: Collection[str] | None = None,
        repeatable: Collection[str] = (),
        failed_on: Kinds = (),
        allow: Iterable[Allowed] | None = None,
        plain_outside: bool = False,
    ) -> None:
        super().__init__()
        self._serde = StrictSerializer(allow)
        check_function("key", key)
        self._run, self._key, self._plain_outside = run, key, plain_outside
        self._only = tool_names("only", only) if only is not None else None
        self._repeatable = tool_names("repeatable", repeatable)
        self._ends = Ends(failed_on)

    def _find_run(self, name: str, is_async: bool) -> Any:
        """Finds the run that records a call of a tool; `None` if the tool is called plainly."""
        if self._only is not None and name not in self._only:
            return None
        run = self._run or current_run.get()
        if run is None and not self._plain_outside:
            raise no_run_error(f"tool {name} was called")
        if run is not None and run.is_async is not is_async:
            raise Usage(
                "an agent invoked async needs a run of `runlog`, and an agent invoked sync a run of `runlog.sync`"
            )
        return run

    def _call(self, run: Any, request: ToolCallRequest, effect: Callable[[Call], Any]) -> Any:
        name, args = request.tool_call["name"], request.tool_call["args"]
        key = self._key(name, args) if self._key is not None else None
        recorded = to_json(args)
        if key is None:
            # With a key the model's id of the call is not needed: the key identifies the call.
            call = (request.tool_call["id"], name)
            messages = _model_messages(request.state)
            recorded = with_number(
                {"id": call[0], "args": recorded}, call, [_calls_of(each) for each in messages], run.id
            )
            asked_by = next((each for each in reversed(messages) if call in _calls_of(each)), None)
            if asked_by is not None and asked_by.id is not None:
                _asking_messages.check(run, call, recorded, asked_by.id)
        repeatable = name in self._repeatable
        return run.call(name, recorded, effect, key=key, ends=self._ends, unique=True, repeatable=repeatable)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolAnswer]) -> ToolAnswer:
        """Runs a tool through the gate."""
        run = self._find_run(request.tool_call["name"], False)
        if run is None:
            return handler(request)

        def effect(_: Call) -> Json:
            return _recorded(handler(request), self._serde)

        answer: Answer = self._call(run, request, effect)
        return _answer(answer.result, request, self._serde)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolAnswer]]
    ) -> ToolAnswer:
        """Runs a tool through the gate."""
        run = self._find_run(request.tool_call["name"], True)
        if run is None:
            return await handler(request)

        async def effect(_: Call) -> Json:
            return _recorded(await handler(request), self._serde)

        answer: Answer = await self._call(run, request, effect)
        return _answer(answer.result, request, self._serde)


def _model_messages(state: Any) -> list[AIMessage]:
    """The model's messages in the state of a graph."""
    messages: object = state
    if isinstance(state, dict):
        messages = cast("dict[str, object]", state).get("messages")
    elif not isinstance(state, list):
        messages = getattr(state, "messages", None)
    every = cast("list[object]", messages) if isinstance(messages, list) else []
    return [message for message in every if isinstance(message, AIMessage)]


def _calls_of(message: AIMessage) -> list[ModelCall]:
    """The calls of tools that the model made in a message."""
    return [(call["id"], call["name"]) for call in message.tool_calls]


def _recorded(answer: ToolAnswer, serde: StrictSerializer) -> Any:
    """Encodes the answer of a tool as JSON, or with LangGraph's serializer for a command or a message with an
    artifact. The tool has already run, so this raises no error: a call whose answer cannot be stored ends without
    it."""
    try:
        if isinstance(answer, ToolMessage) and answer.artifact is None:
            members = cast("dict[str, Any]", to_json(answer, mark_nan=True))
            return {"content": members["content"], "status": members["status"], "name": members["name"]}
        return {"serialized": dump(serde, answer, "the answer of a tool")}
    except Exception as error:
        return Unrecordable(error)


def _answer(recorded: Any, request: ToolCallRequest, serde: StrictSerializer) -> ToolAnswer:
    if isinstance(recorded, Unrecordable):
        raise recorded.error
    what = f"the recorded answer of {request.tool_call['name']}"
    if isinstance(recorded, dict) and "serialized" in recorded:
        answer = load(serde, cast("dict[str, Any]", recorded)["serialized"], what)
        if not isinstance(answer, (ToolMessage, Command)):
            raise Invalid(f"{what} is not an answer of a tool, but a {type(answer).__name__}")
        return cast("ToolAnswer", answer)
    members = cast("dict[str, Any]", recorded) if isinstance(recorded, dict) else {}
    try:
        if "content" not in members or not members.keys() <= _MEMBERS:
            raise ValueError(f"it is {encode(cast('Json', recorded))[:200]}")
        return ToolMessage(**members, tool_call_id=request.tool_call["id"])
    except (TypeError, ValueError) as error:
        raise Invalid(f'{what} is not of the form {{"content": …, "status": "success", "name": …}}: {error}') from error
