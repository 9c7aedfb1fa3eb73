"""`@runlog.tool`: a function whose calls go through the gate of a run.

book("HAT136")        the run of the `with rl.run(…)` around, or else an error: no function is called plainly by accident
book(run, "HAT136")   this run
"""

from __future__ import annotations

import contextvars
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from inspect import BoundArguments
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ._checks import check_text, is_positive
from ._decode import decode
from ._effect import Call, within
from ._ends import Ends, Kinds
from ._handle import OPEN_IT, AsyncRun, BaseRun, PlainRun, RunBlock
from ._hints import ReturnType
from ._records import new_id
from ._replay import call_key
from ._signature import Key, ToolSignature
from .errors import Usage

if TYPE_CHECKING:
    from tenacity import Retrying

P = ParamSpec("P")
R = TypeVar("R")

current_run: contextvars.ContextVar[Any] = contextvars.ContextVar("runlog_run", default=None)
"""The run of the innermost `with rl.run(…)`. Tasks and `asyncio.to_thread` inherit it, other threads and processes do not."""


def leave_current(run: BaseRun, outer: BaseRun | None) -> None:
    """Restores the current run at the end of a block, unless the block ends in another context than it began in, as in a dependency
    of a web framework."""
    if current_run.get() is run:
        current_run.set(outer)


def no_run_error(what: str) -> Usage:
    """Makes the error for a call outside of a run."""
    return Usage(
        f"{what} outside of a run, and did nothing: use `with rl.run(…)` around it. A thread or an executor begins outside: give "
        "the run to the tool as its first argument, or start it with `asyncio.to_thread` or `contextvars.copy_context().run`. In "
        "another process open the run there. `plain_outside=True` calls it without a record"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class _Options:
    """The options of `tool(…)`."""

    name: str | None
    key: Key | None
    ends: Ends
    repeatable: bool
    plain_outside: bool
    retry: Retrying | None
    timeout: float | None

    def check(self, tool: str, is_async: bool) -> None:
        """Raises `Usage` for options that no call of the tool can have."""
        if self.retry is not None:
            from ._attempts import check_policy

            check_policy(self.retry, tool, is_safe=self.key is not None or self.repeatable)
        if self.timeout is not None:
            if not is_async:
                raise Usage(
                    f"{tool} is a plain function, which no time limit can cut: limit the requests that it makes instead"
                )
            if not is_positive(self.timeout):
                raise Usage(f"timeout of {tool} is a number of seconds above 0, not {self.timeout!r}")


def _of_other_kind(tool: str, is_async: bool) -> str:
    if is_async:
        return (
            f"{tool} is an async function, but the run belongs to a plain connection: make it a plain function, or connect with "
            "`runlog.connect`"
        )
    return (
        f"{tool} is a plain function, but the run belongs to an async connection: make it `async def`, or connect with "
        "`runlog.sync.connect`"
    )


def _name_of(function: Callable[..., Any]) -> str:
    """The name of a function. Raises `Usage` for a name that many functions have: their calls would be the same calls."""
    name = getattr(function, "__name__", type(function).__name__)
    if name == "<lambda>" or isinstance(function, partial):
        raise Usage(
            f"a tool of {'a lambda' if name == '<lambda>' else 'a partial'} has no name of its own: pass `name=`, or write a `def`"
        )
    return name


class _Tool(Generic[P, R]):
    """The shared part of sync and async tools."""

    _is_async = False

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        self.function = function
        self.name = options.name or _name_of(function)
        check_text("the name of a tool", self.name)
        options.check(self.name, self._is_async)
        self._options = options
        self._of_call = ToolSignature(function, self.name, options.key)
        self._return = ReturnType(function, self.name)
        self.__doc__ = function.__doc__
        self.__name__ = self.name
        self.__module__ = getattr(function, "__module__", __name__)
        self.__qualname__ = getattr(function, "__qualname__", self.name)
        self.__wrapped__ = function
        self.__signature__ = self._of_call.public

    def __reduce__(self) -> str:
        """Pickles by name, as for functions: another process calls the tool that it has imported."""
        return self.__qualname__

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, BoundArguments]:
        """Binds the run of a call, and its arguments. Raises `Usage` before the function is called."""
        if args and isinstance(args[0], RunBlock):
            raise Usage(f"tool {self.name} was given a run that is not open: {OPEN_IT}")
        given = bool(args) and isinstance(args[0], BaseRun)
        run = args[0] if given else current_run.get()
        bound = self._of_call.bind(args[1:] if given else args, kwargs)
        if run is None and not self._options.plain_outside:
            raise no_run_error(f"tool {self.name} was called")
        if run is not None and run.is_async is not self._is_async:
            raise Usage(_of_other_kind(self.name, self._is_async))
        return run, bound

    def _key(self, bound: BoundArguments) -> str | None:
        key = call_key(self.name, self._of_call.key(bound))
        return key[1] if key is not None else None

    def _plainly(self, bound: BoundArguments) -> Any:
        """Calls the function without a record: its `Call` has the attempt 0."""
        return self.function(Call(new_id(), 0, self._key(bound)), *bound.args, **bound.kwargs)

    def _in(self, run: Any, bound: BoundArguments) -> Any:
        """Calls the function through the gate of a run."""
        options = self._options

        def effect(call: Call) -> Any:
            running: Any = self.function(call, *bound.args, **bound.kwargs)
            return running if options.timeout is None else within(options.timeout, running)

        args, key = self._of_call.recorded(bound), self._key(bound)
        # Resolved in the first process already, so that a warning about the annotation comes before a crash.
        hint = self._return.hint()
        # A call for which the key is None is not retried.
        retry = options.retry if key is not None or options.repeatable else None
        return run.call(
            self.name,
            args,
            effect,
            key=key,
            ends=options.ends,
            repeatable=options.repeatable,
            retry=retry,
            decode=partial(decode, hint),
        )


class AsyncTool(_Tool[P, R]):
    """A tool that is a coroutine function."""

    _is_async = True

    def __init__(self, function: Callable[..., Any], options: _Options) -> None:
        super().__init__(function, options)
        # Frameworks check this attribute to detect async callables. The tool itself does not use it.
        self.__dict__["__call__"] = self._called

    @overload
    def __call__(self, run: AsyncRun, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, R]:
        # Not async: in plain code the error would need an `await` that never comes.
        return self._answered(*self._bind(args, kwargs))

    async def _called(self, *args: Any, **kwargs: Any) -> R:
        return await self._answered(*self._bind(args, kwargs))

    async def _answered(self, run: Any, bound: BoundArguments) -> R:
        return await self._plainly(bound) if run is None else (await self._in(run, bound)).result


class SyncTool(_Tool[P, R]):
    """A tool that is a plain function."""

    @overload
    def __call__(self, run: PlainRun, /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> R:
        run, bound = self._bind(args, kwargs)
        return self._plainly(bound) if run is None else self._in(run, bound).result


class _Decorator:
    """The decorator that `tool(…)` returns."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, function: Callable[Concatenate[Call, P], Awaitable[R]], /
    ) -> AsyncTool[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Call, P], R], /) -> SyncTool[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        called = getattr(function, "__call__", None)  # noqa: B004 - of an object with an async one
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        return (AsyncTool[Any, Any] if is_async else SyncTool[Any, Any])(function, self._options)


@overload
def tool(  # pyright: ignore[reportOverlappingOverload]
    function: Callable[Concatenate[Call, P], Awaitable[R]], /
) -> AsyncTool[P, R]: ...
@overload
def tool(function: Callable[Concatenate[Call, P], R], /) -> SyncTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    key: Key | None = None,
    failed_on: Kinds = (),
    unknown_on: Kinds = (),
    repeatable: bool = False,
    retry: Retrying | None = None,
    timeout: float | None = None,
    plain_outside: bool = False,
) -> _Decorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    key: Key | None = None,
    failed_on: Kinds = (),
    unknown_on: Kinds = (),
    repeatable: bool = False,
    retry: Retrying | None = None,
    timeout: float | None = None,
    plain_outside: bool = False,
) -> Any:
    """Makes a function whose first parameter is `call`, plain or async, a tool: called without `call` it goes through the gate
    of the run of the `with rl.run(…)` around, or of the run that is its first argument.

    Raises `Usage` for a function that no call can fit. A call raises `Usage`, and nothing runs or is recorded, if its arguments do
    not fit, if there is no run, and if an async function is called in a run of `runlog.sync`, or a plain one in any other run.
    Arguments and the result are values as the README lists them. Arguments are recorded by name, without defaults; the first
    one alone as its value.

    * `key`: the idempotency key of a call. It has parameters of the tool by name; of a tool with one parameter it gets that one.
      It makes a call that may have happened safe to repeat. Not empty; `None` for a call without one.
    * `failed_on`: exceptions after which the effect did not happen and will not: a class, several classes, or a function of
      the exception. They are recorded and raised as `Failed`.
    * `unknown_on`: exceptions that mean that the effect may have happened, although `failed_on` covers them.
    * `repeatable`: the effect may run any number of times, as in a tool that only reads. See `Run.call`.
    * `retry`: a `tenacity.Retrying` with a `stop`. It decides whether the effect runs again after an exception that means that it
      may have happened. The tool has a key, or is repeatable; each attempt is recorded before it runs.
    * `timeout`: the seconds after which an attempt of an async tool is cut. Its effect may have happened: `TimedOut` is an
      `Unknown`, even if `failed_on` covers it.
    * `plain_outside`: outside of a run call the function plainly. Nothing is recorded, and its `Call` has the attempt 0.

    `Failed` is always such a failure. After any other exception the effect may have happened: no result is recorded, and the
    call stays pending.
    """
    decorator = _Decorator(_Options(name, key, Ends(failed_on, unknown_on), repeatable, plain_outside, retry, timeout))
    return decorator if function is None else decorator(function)
