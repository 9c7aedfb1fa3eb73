"""Transports that interrupt an operation at a chosen request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from runlog._http import AsyncHttp, SyncHttp
from runlog._wire import NoResponse, Request, Response
from runlog.config import Config


class Interrupted(BaseException):
    """Interrupts like a KeyboardInterrupt: the client must not swallow it."""


class SyncFaults:
    """Calls `fault` at the n-th request, before it is sent or after its answer arrived."""

    def __init__(self, config: Config) -> None:
        self.http, self.count = SyncHttp(config), 0
        self.at: int | None = None
        self.after = False
        self.fault: Callable[[], None] = interrupt
        self.times = 1

    def arm(self, at: int, after: bool, fault: Callable[[], None], times: int = 1) -> None:
        self.count, self.at, self.after, self.fault, self.times = 0, at, after, fault, times

    def send(self, request: Request) -> Response:
        self.count += 1
        hit = self.at is not None and self.at <= self.count < self.at + self.times
        if hit and not self.after:
            self.fault()
        answer = self.http.send(request)
        if hit:
            self.fault()
        return answer

    def close(self) -> None:
        self.http.close()


class AsyncFaults:
    """Cancels the task that sends the n-th request, before it is sent or after its answer arrived."""

    def __init__(self, config: Config) -> None:
        self.http, self.count = AsyncHttp(config), 0
        self.at: int | None = None
        self.after = False

    def arm(self, at: int, after: bool) -> None:
        self.count, self.at, self.after = 0, at, after

    async def send(self, request: Request) -> Response:
        self.count += 1
        hit = self.count == self.at
        if hit and not self.after:
            await self.cancel()
        answer = await self.http.send(request)
        if hit:
            await self.cancel()
        return answer

    async def cancel(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def close(self) -> None:
        await self.http.close()


def interrupt() -> None:
    raise Interrupted


def lost() -> None:
    raise NoResponse("the connection broke", sent=True)


def refused() -> None:
    raise NoResponse("connection refused", sent=False)
