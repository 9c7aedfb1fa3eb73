"""Detects a program that does not make the calls of the process before it.

    recorded after the checkpoint   a  b  c
    asked for by this process       a            then a new call x ─▶ `Diverged`: b and c were not asked for

A program whose calls depend on nothing else makes the recorded calls again before it makes new calls, in any order. If
it does not, as after a change of its arguments, its new call may repeat the effect of a recorded call. Calls in several
tasks or threads may begin in another order each time. So a new call is only warned of outside of the task or thread that
opened the run, and while another task or thread runs that has made a call. If the opener has ended, it is also only warned of
beside other tasks, and outside of the main thread: they may be workers that have not called yet.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from typing import Any, Literal, TypeAlias

from ._api import Api
from ._json import encode
from ._replay import request_order
from ._wire import Sleep, Steps
from .errors import Diverged, Usage

OnDivergence: TypeAlias = Literal["raise", "allow"]
NAMED_MAX = 3
"""The maximum number of calls that an error names with their arguments."""
_ARGUMENTS_MAX = 100
_LOGGER = logging.getLogger("runlog")


def _task_or_thread() -> object:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return task or threading.current_thread()


def _has_ended(caller: Any) -> bool:
    """Whether a task or a thread makes no call any more. It may have been freed."""
    if caller is None:
        return True
    return caller.done() if isinstance(caller, asyncio.Future) else not caller.is_alive()


def _waits_for(caller: Any, task: Any) -> bool:
    """Whether a task is suspended in `asyncio.wait_for` of another task, which Python 3.11 makes for it. No public function says
    so; without these attributes the answer is no."""
    waiter = getattr(caller, "_fut_waiter", None)
    callbacks: Any = getattr(task, "_callbacks", None) or ()
    return waiter is not None and any(waiter in getattr(callback, "args", ()) for callback, _ in callbacks)


def _with_waiting(caller: Any) -> list[Any]:
    """A task, the task that waits for it alone, and so on. In `await task`, too."""
    chain: list[Any] = [caller]
    if not isinstance(caller, asyncio.Future):
        return chain
    tasks: set[Any] = asyncio.all_tasks()
    while True:
        last = chain[-1]
        waiting = (task for task in tasks if getattr(task, "_fut_waiter", None) is last or _waits_for(task, last))
        following = next((task for task in waiting if task not in chain), None)
        if following is None:
            return chain
        chain.append(following)


class Divergence:
    """The recorded calls of earlier processes that this process has not asked for."""

    def __init__(self, run_id: str, mode: OnDivergence) -> None:
        if mode not in ("raise", "allow"):
            raise Usage(f'on_divergence is "raise" or "allow", not {mode!r}')
        self._run_id, self._mode = run_id, mode
        self._expected: dict[str, str] = {}
        """The tools of recorded calls, by request, in the order of the requests."""
        self._asked: dict[str, str] = {}
        """The calls that were removed from `_expected`."""
        self._opener = weakref.ref(_with_waiting(_task_or_thread())[-1])
        """The task or thread that opens the run. If another task waits for it, that task."""
        self._callers: dict[int, weakref.ref[Any]] = {}
        """Tasks and threads that made calls, by their addresses. Several threads use it."""
        self._warned: set[str] = set()
        self._repeatable: set[str] = set()
        """The names of tools that this handle called as repeatable: to leave out their recorded calls repeats no effect."""
        self._has_read_facts = False

    def expect(self, recovery: dict[str, Any], covered: int) -> None:
        """Expects the calls that a recovery lists after its checkpoint. The process may leave out calls that did not
        happen, and pending calls that are safe to repeat without a key."""
        found = [call for call in recovery["completed"] if call["status"] != "failed"]
        found += [call for call in recovery["pending"] if call["class"] != "retry_safe" or call.get("idempotency_key")]
        for call in sorted(found, key=request_order):
            if call["journal_seq"] > covered and call.get("tool_name"):
                self._expected[call["id"]] = call["tool_name"]

    def note_call(self, tool: str, repeatable: bool) -> None:
        """Notes the start of a call, before it waits for others."""
        if repeatable:
            self._repeatable.add(tool)
        caller = _task_or_thread()
        callers, address = self._callers, id(caller)
        callers[address] = weakref.ref(caller, lambda _: callers.pop(address, None))

    def _is_sequential(self) -> bool:
        """Whether the program makes its calls one after the other: in the task or thread that opened the run, and no other
        runs that has made a call. After the end of the opener: in the main thread, or in a task beside which no other runs."""
        caller, opener = _task_or_thread(), self._opener()
        others = [other() for other in list(self._callers.values())]
        if any(other is not caller and not _has_ended(other) and not _waits_for(other, caller) for other in others):
            return False
        if not _has_ended(opener):
            return opener is caller or _waits_for(opener, caller)
        if isinstance(caller, asyncio.Future):
            return set(_with_waiting(caller)) == asyncio.all_tasks()
        return caller is threading.main_thread()

    def note_asked(self, tool: str, call_id: str, *, begins_at_start: bool) -> None:
        """Notes that this process asked for a recorded call. `begins_at_start` if the checkpoint covers it, and the process did
        not read the recovery."""
        if (expected := self._expected.pop(call_id, None)) is not None:
            self._asked[call_id] = expected
        if begins_at_start:
            self._warn(
                "covered",
                "the journal answers a call of %s in run %s, because this process did not read `run.recovery` and so begins at the "
                "run's start: call %s, which the last checkpoint covers. Read `run.recovery` to resume at the checkpoint, where "
                "the same call is new, or open the run with from_start=True",
                (tool, self._run_id, call_id),
            )

    def note_unanswered(self, call_id: str) -> None:
        """Expects a recorded call again, because the process did not get its answer."""
        if (tool := self._asked.pop(call_id, None)) is not None:
            self._expected[call_id] = tool

    def forget(self) -> None:
        """Expects no call any more: a checkpoint of this process covers them all."""
        self._expected.clear()
        self._asked.clear()

    def check(self, api: Api, tool: str) -> Steps[None]:
        """Checks a new call of `tool` that may repeat the effect of another. Raises `Diverged` if recorded calls were not asked
        for, or warns if several tasks or threads make calls."""
        if not self._unasked():
            return
        # Lets tasks that were started together with this one begin their calls.
        yield Sleep(0)
        if self._unasked():
            yield from self._leave_out_repeatable(api)
        if not (unasked := self._unasked()):
            return
        if not self._is_sequential():
            self._warn(
                "unasked",
                "%s is a new call in run %s, and %d recorded calls after the checkpoint were not asked for yet, such as call %s of "
                '%s. Open a run whose calls are not made again with on_divergence="allow"',
                (tool, self._run_id, len(unasked), unasked[0], self._expected[unasked[0]]),
            )
            return
        named: list[str] = []
        for call_id in unasked[:NAMED_MAX]:
            call = yield from api.call(self._run_id, call_id)
            named.append(f"{call['tool_name']}({encode(call['arguments'])[:_ARGUMENTS_MAX]}), call {call_id}")
        more = f"; and {len(unasked) - len(named)} more" if len(unasked) > len(named) else ""
        message = (
            f"{tool} is a new call in run {self._run_id}, and recorded calls after the checkpoint were not asked for: "
            f"{'; '.join(named)}{more}. Nothing ran, because the new call may repeat one of them. Make them again first, with the "
            'same arguments, or open the run with on_divergence="allow"'
        )
        raise Diverged(message, calls=tuple(unasked), run_id=self._run_id)

    def _unasked(self) -> list[str]:
        if self._mode == "allow":
            return []
        return [call_id for call_id, tool in self._expected.items() if tool not in self._repeatable]

    def _leave_out_repeatable(self, api: Api) -> Steps[None]:
        """Expects no call any more that was recorded as repeatable, on a server with the feature `bases`. Reads once."""
        if not self._has_read_facts:
            self._has_read_facts = True
            for call_id in (yield from api.repeatable_calls(self._run_id, self._unasked())):
                self._expected.pop(call_id, None)

    def _warn(self, kind: str, message: str, arguments: tuple[object, ...]) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _LOGGER.warning(message, *arguments)
