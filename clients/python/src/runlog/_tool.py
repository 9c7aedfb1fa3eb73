"""`@runlog.tool`: a function whose calls go through the gate."""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

from ._gate import Call, Ends
from ._records import new_id
from ._replay import call_key
from .errors import Usage

if TYPE_CHECKING:
    from .aio import Run
    from .sync import Run as SyncRun

A = TypeVar("A")
R = TypeVar("R")
P = ParamSpec("P")

current_run: contextvars.ContextVar[Any] = contextvars.ContextVar("runlog_run", default=None)
"""The run of the innermost `with rl.run(…)`."""


class _Tool(Generic[A, R]):
    """What sync and async tools share."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        key: Callable[[A], str | None] | None,
        ends: Ends,
        strict: bool,
    ) -> None:
        self.function = function
        self.name = name or function.__name__
        self.ends = ends
        self._key, self._strict = key, strict
        self._decode = _decoder(function)
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__wrapped__ = function

    def _bound(self, run_or_args: Any, args: Any) -> tuple[Any, A]:
        if args is not _NOTHING:
            return run_or_args, args
        run = current_run.get()
        if run is None and self._strict:
            raise Usage(f"tool {self.name} was called outside of a run")
        return run, run_or_args

    def _check_kind(self, run: Any, is_async: bool) -> None:
        if run.is_async is not is_async:
            here, there = ("an async", "a plain") if is_async else ("a plain", "an async")
            raise Usage(f"{self.name} is {here} function, the run is that of {there} connection")

    def key_of(self, args: A) -> str | None:
        """The idempotency key of a call. Raises `Usage` for an empty one."""
        key = call_key(self.name, self._key(args) if self._key is not None else None)
        return key[1] if key is not None else None

    def answer(self, answer: Any) -> R:
        """The result of a call; one from the journal as the function's return type."""
        return self._decode(answer.result) if answer.recorded else answer.result


_NOTHING: Any = object()


class AsyncTool(_Tool[A, R]):
    """A tool that is a coroutine function."""

    @overload
    async def __call__(self, run: Run, args: A, /) -> R: ...
    @overload
    async def __call__(self, args: A, /) -> R: ...
    async def __call__(self, run: Any, args: Any = _NOTHING, /) -> R:
        run, args = self._bound(run, args)
        if run is None:
            return await self.function(Call(new_id(), 1, self.key_of(args)), args)

        self._check_kind(run, True)

        def effect(call: Call) -> Any:
            return self.function(call, args)

        answer = await run.call(self.name, args, effect, key=self.key_of(args), ends=self.ends)
        return self.answer(answer)


class SyncTool(_Tool[A, R]):
    """A tool that is a plain function."""

    @overload
    def __call__(self, run: SyncRun, args: A, /) -> R: ...
    @overload
    def __call__(self, args: A, /) -> R: ...
    def __call__(self, run: Any, args: Any = _NOTHING, /) -> R:
        run, args = self._bound(run, args)
        if run is None:
            return self.function(Call(new_id(), 1, self.key_of(args)), args)

        self._check_kind(run, False)

        def effect(call: Call) -> Any:
            return self.function(call, args)

        answer = run.call(self.name, args, effect, key=self.key_of(args), ends=self.ends)
        return self.answer(answer)


class _Decorator:
    """What `tool(…)` returns."""

    def __init__(self, name: str | None, key: Callable[[Any], str | None] | None, ends: Ends, strict: bool) -> None:
        self._options = (name, key, ends, strict)

    @overload
    def __call__(self, function: Callable[[Call, A], Awaitable[R]], /) -> AsyncTool[A, R]: ...
    @overload
    def __call__(self, function: Callable[[Call, A], R], /) -> SyncTool[A, R]: ...
    def __call__(self, function: Callable[[Call, Any], Any], /) -> Any:
        kind = AsyncTool[Any, Any] if inspect.iscoroutinefunction(function) else SyncTool[Any, Any]
        return kind(function, *self._options)


@overload
def tool(function: Callable[[Call, A], Awaitable[R]], /) -> AsyncTool[A, R]: ...
@overload
def tool(function: Callable[[Call, A], R], /) -> SyncTool[A, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    key: Callable[[Any], str | None] | None = None,
    failed_on: tuple[type[BaseException], ...] = (),
    unknown_on: tuple[type[BaseException], ...] = (),
    strict: bool = False,
) -> _Decorator: ...
def tool(
    function: Callable[[Call, Any], Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: Callable[[Any], str | None] | None = None,
    failed_on: tuple[type[BaseException], ...] = (),
    unknown_on: tuple[type[BaseException], ...] = (),
    strict: bool = False,
) -> Any:
    """Makes a function `(call, args)`, plain or async, a tool: called as `tool(run, args)` it goes through the gate.

    `args` is a dataclass, a model with `model_dump`, or JSON. Inside `with rl.run(…)` the run may be left out. Outside of a
    run the function is called plainly, unless `strict` is set.

    * `key`: the idempotency key of a call, from its `args`. It makes a call that may have happened safe to repeat.
      Not empty; `None` for a call without one.
    * `failed_on`: exceptions that mean that the effect did not happen, finally. They are recorded and raised as `Failed`.
    * `unknown_on`: exceptions among those that mean that it may have happened.

    `Failed` is always such a failure. Any other exception means that the effect may have happened: nothing is recorded, and
    the call stays pending.
    """
    decorator = _Decorator(name, key, Ends(failed_on, unknown_on), strict)
    return decorator if function is None else decorator(function)


def _decoder(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """Makes recorded JSON the function's return type: a model with `model_validate`, or a dataclass."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        hint = None
    return lambda value: decode(hint, value)


def decode(hint: Any, value: Any) -> Any:
    """JSON as a value of a type, where that is a dataclass, a model, or a list, tuple, mapping or option of such."""
    if value is None or hint is None:
        return value
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is None:
        validate = getattr(hint, "model_validate", None)
        if callable(validate):
            return validate(value)
        if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
            members = cast("Mapping[str, Any]", value)
            hints = typing.get_type_hints(hint)
            return cast("Callable[..., Any]", hint)(**{name: decode(hints.get(name), v) for name, v in members.items()})
        return value
    if origin is list and isinstance(value, list):
        return [decode(parts[0], element) for element in cast("list[Any]", value)]
    if origin is tuple and isinstance(value, list):
        elements = cast("list[Any]", value)
        every = parts[0] if len(parts) == 2 and parts[1] is Ellipsis else None
        kinds = [every] * len(elements) if every else list(parts)
        return tuple(decode(kind, element) for kind, element in zip(kinds, elements, strict=False))
    if origin is dict and isinstance(value, dict):
        return {name: decode(parts[1], member) for name, member in cast("dict[str, Any]", value).items()}
    options = [part for part in parts if part is not type(None)]
    return decode(options[0], value) if len(options) == 1 else value
