"""Drivers: they run the core's generators, sync and async.

A driver throws a command's exception into the generator, also a cancellation, so that the core can settle its state.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from ._http import AsyncTransport, SyncTransport
from ._wire import Acquire, Command, Perform, Request, Sleep, Steps
from .errors import Forked, Usage

T = TypeVar("T")


class _Owner:
    """The process that a connection belongs to. Two processes on one connection would read each other's answers."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise Forked(f"the connection belongs to process {self._pid}; connect in this process")


class SyncDriver:
    """Runs operations on the calling thread."""

    def __init__(self, transport: SyncTransport) -> None:
        self.transport = transport
        self._owner = _Owner()

    def lock(self) -> threading.Lock:
        """A new lock."""
        return threading.Lock()

    def semaphore(self, permits: int) -> threading.Semaphore:
        """A new semaphore."""
        return threading.Semaphore(permits)

    def drive(self, steps: Steps[T]) -> T:
        """Runs an operation to its end."""
        self._owner.check()
        command = _begin(steps)
        while isinstance(command, _COMMANDS):
            try:
                result = self._do(command)
            except BaseException as error:
                command = _advance(lambda error=error: steps.throw(error))
            else:
                command = _advance(lambda result=result: steps.send(result))
        return command.value

    def _do(self, command: Command) -> Any:
        match command:
            case Request():
                return self.transport.send(command)
            case Sleep():
                return time.sleep(command.seconds)
            case Acquire():
                return command.lock.acquire(timeout=command.seconds)
            case Perform():
                result = command.effect()
                if inspect.iscoroutine(result):
                    result.close()
                    raise Usage(
                        "its effect returned a coroutine, which did not run: in a run of `runlog.sync` it is a plain function"
                    )
                return result


class AsyncDriver:
    """Runs operations in the calling task."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.transport = transport
        self._owner = _Owner()
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first operation. Two loops on one connection would close each other's requests."""

    def lock(self) -> asyncio.Lock:
        """A new lock, in FIFO order."""
        return asyncio.Lock()

    def semaphore(self, permits: int) -> asyncio.Semaphore:
        """A new semaphore."""
        return asyncio.Semaphore(permits)

    async def drive(self, steps: Steps[T]) -> T:
        """Runs an operation to its end. A cancellation is thrown into it."""
        self._owner.check()
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise Usage(
                "the connection belongs to another event loop: connect in this one, or await the operation there"
            )
        command = _begin(steps)
        while isinstance(command, _COMMANDS):
            try:
                result = await self._do(command)
            except BaseException as error:
                command = _advance(lambda error=error: steps.throw(error))
            else:
                command = _advance(lambda result=result: steps.send(result))
        return command.value

    async def _do(self, command: Command) -> Any:
        match command:
            case Request():
                return await self.transport.send(command)
            case Sleep():
                return await asyncio.sleep(command.seconds)
            case Acquire():
                try:
                    async with asyncio.timeout(command.seconds):
                        return await command.lock.acquire()
                except TimeoutError:
                    return False
            case Perform():
                result = command.effect()
                # A plain function has already run. An error would leave its call pending, although its result is known.
                return await result if inspect.isawaitable(result) else result


_COMMANDS = (Request, Sleep, Acquire, Perform)


class _Done:
    """The return value of an operation."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _begin(steps: Steps[Any]) -> Command | _Done:
    return _advance(lambda: next(steps))


def _advance(step: Callable[[], Command]) -> Command | _Done:
    try:
        return step()
    except StopIteration as stop:
        return _Done(stop.value)
