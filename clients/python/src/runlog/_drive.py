"""Drivers: they run the core's generators over HTTP, sync and async.

A driver throws a command's exception into the generator, also a cancellation, so that the core can settle its state.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import httpx2

from ._wire import Acquire, Command, NoResponse, Perform, Request, Response, Sleep, Steps
from .config import Config
from .errors import Forked, Usage

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0
IDLE_MAX = 5.0
"""How long an idle connection is kept: less than the 10 s after which a server closes it."""
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_LIMITS = httpx2.Limits(max_connections=512, max_keepalive_connections=64, keepalive_expiry=IDLE_MAX)


class _Token:
    """The bearer token, read again after the server refused it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._token = config.read_token()

    def headers(self, request: Request) -> dict[str, str]:
        headers = {"accept": "application/json", **request.headers}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        return headers

    def changed(self) -> bool:
        """Reads the token again. Returns whether it changed."""
        before, self._token = self._token, self._config.read_token()
        return self._token != before


def _timeout(request: Request) -> httpx2.Timeout:
    return httpx2.Timeout(request.timeout, connect=min(CONNECT_TIMEOUT, request.timeout))


def _no_response(error: Exception) -> NoResponse:
    return NoResponse(f"{type(error).__name__}: {error}".rstrip(": "), sent=not isinstance(error, _NOT_SENT))


def _response(answer: httpx2.Response) -> Response:
    return Response(answer.status_code, {name.lower(): value for name, value in answer.headers.items()}, answer.content)


class SyncTransport(Protocol):
    """Sends requests."""

    def send(self, request: Request) -> Response:
        """Raises `NoResponse` if there is no whole answer."""
        ...

    def close(self) -> None:
        """Closes the connections."""
        ...


class AsyncTransport(Protocol):
    """Sends requests."""

    async def send(self, request: Request) -> Response:
        """Raises `NoResponse` if there is no whole answer."""
        ...

    async def close(self) -> None:
        """Closes the connections."""
        ...


class SyncHttp:
    """Sends requests over HTTP."""

    def __init__(self, config: Config) -> None:
        self._token = _Token(config)
        self._client = httpx2.Client(base_url=config.url, verify=config.tls(), limits=_LIMITS, trust_env=False)

    def send(self, request: Request) -> Response:
        """Sends a request; once more with a new token if the token was refused."""
        try:
            answer = self._send(request)
            return self._send(request) if answer.status == 401 and self._token.changed() else answer
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _no_response(error) from error

    def _send(self, request: Request) -> Response:
        return _response(
            self._client.request(
                request.method,
                request.path,
                content=request.body,
                headers=self._token.headers(request),
                timeout=_timeout(request),
            )
        )

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


class AsyncHttp:
    """Sends requests over HTTP."""

    def __init__(self, config: Config) -> None:
        self._token = _Token(config)
        self._client = httpx2.AsyncClient(base_url=config.url, verify=config.tls(), limits=_LIMITS, trust_env=False)

    async def send(self, request: Request) -> Response:
        """Sends a request; once more with a new token if the token was refused."""
        try:
            answer = await self._send(request)
            return await self._send(request) if answer.status == 401 and self._token.changed() else answer
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise _no_response(error) from error

    async def _send(self, request: Request) -> Response:
        return _response(
            await self._client.request(
                request.method,
                request.path,
                content=request.body,
                headers=self._token.headers(request),
                timeout=_timeout(request),
            )
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


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
