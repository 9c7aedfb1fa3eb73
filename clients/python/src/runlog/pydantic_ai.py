"""`RunlogDurability`: an agent of Pydantic AI whose tools go through the gate, and whose model requests are not
repeated.

    async with rl.run(id):
        agent.run(…)  ─▶ model request ─▶ call `pydantic_ai.model`, keyed by agent run and number ─▶ the model
                      ─▶ tool call     ─▶ call of the tool, identified by the model's id          ─▶ the tool

A process that resumes calls `agent.run` as the first process did. The journal answers the finished model requests and
tool calls. So the same conversation, with the same tool call ids, continues where it was interrupted.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import re
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, cast

from pydantic_ai.capabilities.abstract import WrapRunHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CapabilityOperationId,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
    conversation_id_from_run_id,
    record_durable_unit,
    replay_scope,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import to_jsonable_python

from ._checks import check_function, tool_names
from ._effect import Answer, Call
from ._ends import Ends, Kinds
from ._json import Json
from ._model_calls import AskingMessages, ModelCall, with_number
from ._models import in_order
from ._records import new_id
from ._session import Session
from ._tool import current_run, no_run_error
from ._values import Unrecordable, to_json
from .aio import Run
from .errors import Conflict, Error, Usage

Key = Callable[[str, dict[str, Any]], str | None]
Body = Callable[[], Awaitable[object]]

MODEL = "pydantic_ai.model"
_COMPACT = "pydantic_ai.compact"
_VALIDATE = "pydantic_ai.validate"
_inside: ContextVar[bool] = ContextVar("runlog_pydantic_ai_inside", default=False)
"""Whether an effect is running. The actions of an agent that a tool runs belong to the tool's call."""


@dataclass(slots=True)
class _AgentRun:
    """A run of an agent, in this process. A retry after a failure uses the same id and its recorded operations."""

    owner: asyncio.Task[Any] | None = None
    """The task that runs it; `None` while no task does."""
    entered: bool = False
    finished: bool = False
    counts: Counter[str] = field(default_factory=Counter[str])
    """Answered operations, by kind."""

    def is_free(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether `task` may run it: it failed, or the task that reserved it never started it."""
        if self.finished:
            return False
        return self.owner is None or (not self.entered and (self.owner is task or self.owner.done()))


@dataclass(slots=True)
class _AgentRuns:
    """The agent runs of a handle since its last checkpoint. A checkpoint during an agent run does not restart the
    count: the agent's calls still belong to the interrupted run."""

    checkpoint: str | None
    base: str
    """The checkpoint from which they are counted."""
    first: int = 1
    recorded: Sequence[str] = ()
    """The recorded ids of an ended run, which this process replays from its start. They come first."""
    runs: dict[str, _AgentRun] = field(default_factory=dict[str, _AgentRun])
    """By name."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The names of agent runs by the ids that this process gave them. An id is never in the messages of another process, which
    Pydantic AI refuses to continue under the same id."""

    @staticmethod
    def of_run(run: Run) -> _AgentRuns:
        """The agent runs of a handle that was just opened. The count starts at the first agent run that the
        checkpoint does not cover."""
        checkpoint = run.quiet_checkpoint_id
        name = re.compile(f"/{re.escape(run.id)}:([^:/]+):([0-9]+)/[0-9]+$")
        replayed = [match for key in run.replayed_keys(MODEL) if (match := name.search(key))]
        if replayed:
            bases = dict.fromkeys(match[1] for match in replayed)
            counts = {base: sorted({int(match[2]) for match in replayed if match[1] == base}) for base in bases}
            recorded = [f"{run.id}:{base}:{number}" for base, numbers in counts.items() for number in numbers]
            return _AgentRuns(checkpoint, checkpoint or "start", recorded=recorded)
        found = [match for key in run.uncovered_keys(MODEL) if (match := name.search(key))]
        if not found:
            return _AgentRuns(checkpoint, checkpoint or "start")
        # A process that abandoned its agent runs left calls of an older count.
        base = found[-1][1]
        return _AgentRuns(checkpoint, base, min(int(match[2]) for match in found if match[1] == base))

    def is_running(self) -> bool:
        """Whether an agent runs now."""
        return any(agent_run.entered and agent_run.owner is not None for agent_run in self.runs.values())

    def next_id(self, run_id: str) -> str:
        """Reserves the first free agent run, and returns its id. Numbers follow the order in which agent runs begin."""
        name = self._reserve(run_id)
        agent_run_id = name if name in self.recorded else f"{name}@{new_id()[:8]}"
        self.names[agent_run_id] = name
        return agent_run_id

    def _reserve(self, run_id: str) -> str:
        task = asyncio.current_task()
        counted = (f"{run_id}:{self.base}:{number}" for number in itertools.count(self.first))
        for name in itertools.chain(self.recorded, counted):
            found = self.runs.setdefault(name, _AgentRun())
            if found.is_free(task):
                found.owner, found.entered = task, False
                return name
        raise AssertionError("numbers do not end")

    def begin(self, run_id: str, agent_run_id: str | None, history: Sequence[ModelMessage]) -> _AgentRun:
        """Begins the agent run with an id. An agent run whose messages are in the history has ended: then this is a later one,
        as the answer to an approval that a process before this one asked for."""
        ended = {_name_of(message) for message in history}
        while self.names.get(agent_run_id or "") in ended:
            found = self.of(agent_run_id)
            found.owner, found.finished = None, True
            self.names[agent_run_id or ""] = self._reserve(run_id)
        return self.of(agent_run_id)

    def name(self, agent_run_id: str | None) -> str:
        """The name of an agent run: the same in every process, other than its id. An id that the caller chose is its name."""
        return self.names.get(agent_run_id or "", agent_run_id or "")

    def of(self, agent_run_id: str | None) -> _AgentRun:
        """The agent run of an id, new or not."""
        return self.runs.setdefault(self.name(agent_run_id), _AgentRun())


# Pydantic AI asks for the id of an agent run without waiting.
Session.lists_keys = True
_asking_messages = AskingMessages()
_agent_runs: weakref.WeakKeyDictionary[Run, _AgentRuns] = weakref.WeakKeyDictionary()


def _runs_of(run: Run) -> _AgentRuns:
    found = _agent_runs.get(run)
    if found is None:
        found = _agent_runs[run] = _AgentRuns.of_run(run)
    checkpoint = run.quiet_checkpoint_id
    if found.checkpoint != checkpoint:
        if found.is_running():
            # The agent run began while the checkpoint was taken.
            found.checkpoint = checkpoint
        else:
            found = _agent_runs[run] = _AgentRuns(checkpoint, checkpoint or "start", names=found.names)
    return found


class _Codec:
    """Pydantic AI's JSON codec. A value without JSON raises no error where the effect ran: its call ends without it."""

    def dump(self, tp: Any, value: Any) -> Any:
        """The value as JSON, or why it has none."""
        try:
            return to_json(JSON_CODEC.dump(tp, in_order(value, to_json)), mark_nan=True)
        except Exception as error:
            return Unrecordable(error)

    def load(self, tp: Any, payload: Any) -> Any:
        """Decodes a value. Raises the reason if `dump` made none."""
        if isinstance(payload, Unrecordable):
            raise payload.error
        return JSON_CODEC.load(tp, payload)


class RunlogDurability(BaseDurabilityCapability[AgentDepsT]):
    """Records what an agent does in the given run, or in the run of the enclosing `async with rl.run(…)`.

    Without a run the agent raises `Usage`, unless `plain_outside` is set.

    * `key`: the idempotency key of a tool call, from its name and its arguments; `None` for a tool without one.
    * `only`: the names of tools to record; others, and tools with `metadata={"runlog": False}`, are called plainly.
    * `repeatable`: the names of tools that may run any number of times, such as tools that only read. See `Run.call`.
    * `failed_on`: exceptions of tools after which the effect did not happen and will not. After any other exception it may
      have happened. `ModelRetry` and other answers to the model are results.
    * `plain_outside`: outside of a run let the agent run plainly, without a record. Default: raise `Usage`.
    * `models`, `name`: as of other durability capabilities of Pydantic AI.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Runlog",
        durable_unit_noun="call",
        durable_container_noun="run",
        codec=_Codec(),
        tool_config_key="runlog",
    )

    def __init__(
        self,
        run: Run | None = None,
        *,
        key: Key | None = None,
        only: Collection[str] | None = None,
        repeatable: Collection[str] = (),
        failed_on: Kinds = (),
        plain_outside: bool = False,
        models: Mapping[str, Model] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, name=name)
        check_function("key", key)
        self._run, self._key, self._plain_outside = run, key, plain_outside
        self._only = tool_names("only", only) if only is not None else None
        self._repeatable = tool_names("repeatable", repeatable)
        self._ends = Ends(failed_on)

    def _find_run(self) -> Run | None:
        run = self._run or current_run.get()
        if run is not None and not run.is_async:
            raise Usage("an agent of Pydantic AI needs a run of `runlog`, not of `runlog.sync`")
        if run is None and not self._plain_outside:
            raise no_run_error("an agent was run")
        return run

    @property
    def in_durable_context(self) -> bool:
        """Whether there is a run, and no effect of it is running."""
        return not _inside.get() and self._find_run() is not None

    def get_default_run_id(self) -> str | None:
        """Counts agent runs since the run's last checkpoint, so that a process that resumes finds its own."""
        if not self.in_durable_context:
            return None
        run = cast("Run", self._find_run())
        return _runs_of(run).next_id(run.id)

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Derived from the agent run's id."""
        if not self.in_durable_context:
            return None
        return conversation_id_from_run_id(_runs_of(cast("Run", self._find_run())).name(run_id))

    async def wrap_run(self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler) -> AgentRunResult[Any]:
        """Begins an agent run. After a failure it may be repeated; its recorded answers are not requested again."""
        if not self.in_durable_context:
            return await super().wrap_run(ctx, handler=handler)
        run = cast("Run", self._find_run())
        agent_run = _runs_of(run).begin(run.id, ctx.run_id, ctx.messages)
        agent_run.entered = True
        agent_run.counts.clear()
        try:
            # Answers from the journal do not appear in traces.
            with replay_scope(), run.step():
                result = await super().wrap_run(ctx, handler=handler)
            agent_run.finished = True
            return result
        finally:
            agent_run.owner = None

    def get_durable_operation_backend(self) -> _Backend:
        """The gate, as Pydantic AI calls it."""

        def tool_config(_: DurableOperationId, tool: object | None, name: str) -> Mapping[str, Any] | Literal[False]:
            if self._only is not None and name and name not in self._only:
                return False
            return self._build_resolve_tool_config({})(cast("ToolsetTool[Any] | None", tool), name)

        config = RoleBasedOperationConfig[Any](model={}, event={}, capability={}, tool={}, resolve_tool=tool_config)
        return _Backend(self.name, self._find_run, self._key, self._repeatable, self._ends, config)


class _Backend(JournalCallableOperationBackend[Any]):
    """Runs an operation through the gate of the current run."""

    def __init__(
        self,
        agent: str,
        find_run: Callable[[], Run | None],
        key: Key | None,
        repeatable: Collection[str],
        ends: Ends,
        config: Any,
    ) -> None:
        super().__init__(agent_name=agent, config=config)
        self._agent, self._find_run, self._key, self._ends = agent, find_run, key, ends
        self._tools_repeatable = repeatable

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Body,
        cache_key: tuple[object, ...],
        config: Any,
    ) -> object:
        """Runs `body`, or returns its recorded answer. Discovery and event handlers are not recorded."""
        run = self._find_run()
        if run is None:
            return await body()
        parts = cast("tuple[Any, ...]", cache_key)
        match operation_id:
            case ModelRequestId():
                return await self._numbered(run, MODEL, body, parts[-1], _last(parts[1]))
            case ModelCompactMessagesId():
                return await self._numbered(run, _COMPACT, body, parts[-1], _last(parts[1].messages))
            case ToolsetValidateToolArgumentsId():
                return await self._validate(run, parts[0], parts[1], parts[2], body)
            case ToolsetCallToolId():
                return await self._tool(run, parts[0], parts[1], parts[2], body)
            case CapabilityOperationId():
                # The last part is the context of the agent run, or its id for a call of a workspace.
                agent_run = parts[-1] if isinstance(parts[-1], str) else str(parts[-1].run_id)
                runs = _runs_of(run)
                counts = runs.of(agent_run).counts
                counts[name] += 1
                return await self._call(run, name, {"run": runs.name(agent_run), "number": counts[name]}, body)
            case _:
                return await body()

    async def _tool(self, run: Run, tool: str, arguments: dict[str, Any], ctx: RunContext[Any], body: Body) -> object:
        args = cast("dict[str, Any]", to_jsonable_python(in_order(arguments, to_json), fallback=to_json))
        key = self._key(tool, args) if self._key is not None else None
        # A key identifies its call by itself.
        recorded: Json = args
        if key is None:
            call = (ctx.tool_call_id, tool)
            recorded = with_number(
                {"id": call[0], "args": args}, call, [_calls_of(each) for each in ctx.messages], run.id
            )
            # Processors of the history may have removed its message.
            asked_by = next((each for each in reversed(ctx.messages) if call in _calls_of(each)), None)
            agent_run = _name_of(asked_by) if asked_by is not None else None
            _asking_messages.check(run, call, recorded, (agent_run, *_request_of(run, ctx)))
        repeatable = tool in self._tools_repeatable
        return await self._call(run, tool, recorded, body, key, self._ends, repeatable=repeatable)

    async def _validate(self, run: Run, tool: str, arguments: object, ctx: RunContext[Any], body: Body) -> object:
        """Identifies a validation by the model's request and by all of its call: a model server may repeat ids."""
        values = to_jsonable_python(in_order(arguments, to_json), fallback=to_json)
        sha256 = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        agent_run, request = _request_of(run, ctx)
        args: Json = {"id": ctx.tool_call_id, "tool": tool, "args_sha256": sha256, "request": request}
        key = f"{agent_run}/{request}/{ctx.tool_call_id}/{tool}/{sha256}"
        return await self._repeatable(run, _VALIDATE, args, body, key)

    async def _numbered(self, run: Run, kind: str, body: Body, ctx: RunContext[Any], last: str) -> object:
        """Identifies a request by its number in its agent run, whichever model answers it. With an id from its
        content, an agent with a changed prompt would repeat the requests and run its tools again."""
        runs = _runs_of(run)
        counts, agent_run = runs.of(ctx.run_id).counts, runs.name(ctx.run_id)
        number = counts[kind] + 1
        args: Json = {"agent": self._agent, "run": agent_run, "request": number, "last_message_sha256": last}
        try:
            answer = await self._repeatable(run, kind, args, body, f"{self._agent}/{agent_run}/{number}")
        except Conflict as error:
            if error.record_id is None:
                raise
            message = (
                f"request {number} of agent {self._agent} in run {run.id} is recorded with another message; make the same "
                "call of the agent as the process before, or take a checkpoint after each"
            )
            raise error.copy(message=message) from error
        counts[kind] = number
        return answer

    async def _repeatable(self, run: Run, kind: str, args: Json, body: Body, key: str) -> object:
        """Operations that may run again after a crash, and fail as they would without a run."""
        failed: list[Exception] = []

        async def attempt() -> object:
            try:
                result = await body()
                if isinstance(result, Unrecordable):
                    raise result.error
                return result
            except Exception as error:
                failed.append(error)
                raise

        try:
            return await self._call(run, kind, args, attempt, key)
        except Error:
            if failed:
                raise failed[0] from None
            raise

    async def _call(
        self,
        run: Run,
        tool: str,
        args: Json,
        body: Body,
        key: str | None = None,
        ends: Ends | None = None,
        *,
        repeatable: bool = False,
    ) -> object:
        async def effect(_: Call) -> object:
            token = _inside.set(True)
            try:
                return await body()
            finally:
                _inside.reset(token)

        # The arguments contain an id or a number: a repeated agent run makes the same calls.
        answer: Answer = await run.call(tool, args, effect, key=key, ends=ends, unique=True, repeatable=repeatable)
        record_durable_unit(executed=not answer.recorded)
        return answer.result


def _calls_of(message: ModelMessage) -> list[ModelCall]:
    """The calls of tools that the model made in a message."""
    parts = message.parts if isinstance(message, ModelResponse) else ()
    return [(part.tool_call_id, part.tool_name) for part in parts if isinstance(part, ToolCallPart)]


def _request_of(run: Run, ctx: RunContext[Any]) -> tuple[str, int]:
    """The agent run, and the number of its last answered request to the model: the same in each process."""
    runs = _runs_of(run)
    return runs.name(ctx.run_id), runs.of(ctx.run_id).counts[MODEL]


def _name_of(message: ModelMessage) -> str | None:
    """The name of the agent run that a message belongs to."""
    return re.sub("@[0-9a-f]{8}$", "", message.run_id) if message.run_id is not None else None


def _last(messages: Sequence[ModelMessage]) -> str:
    """The hash of the latest message's content, without system prompts, times and ids, which differ between
    processes."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages[-1:]), mode="json")
    parts = [
        {name: part.get(name) for name in ("part_kind", "content", "tool_name", "args")}
        for message in dumped
        for part in message["parts"]
        if part["part_kind"] != "system-prompt"
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
