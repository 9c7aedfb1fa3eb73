"""The effect of a call: its argument, its answer, and the time limit of an attempt."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from .errors import Failed, TimedOut, Usage


@dataclass(frozen=True, slots=True)
class Call:
    """The argument of an effect."""

    id: str
    """The request's record id: unique, and the same for all attempts."""
    attempt: int
    """1 for the first attempt; higher if an earlier attempt may have happened."""
    idempotency_key: str | None
    """The key to pass to the receiver."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A call's answer."""

    result: Any
    """The result of the effect; as JSON if it was recorded."""
    recorded: bool
    """Whether the answer came from the journal, and the effect did not run now."""
    call_id: str


def check_effect(effect: Callable[..., Any], tool: str) -> None:
    """Raises `Usage` for an effect that cannot be called with a `Call`. Raised later, the error would mean that the effect may
    have happened."""
    try:
        signature = inspect.signature(effect)
    except (TypeError, ValueError) as error:
        if not callable(effect):
            raise Usage(f"the effect of {tool} is not a function: {effect!r}; nothing ran or was recorded") from error
        return  # A C function may have no signature.
    try:
        signature.bind(None)
    except TypeError as error:
        what = f"the effect of {tool} cannot be called with the call as its only argument"
        raise Usage(f"{what}: {error}; nothing ran or was recorded") from error


async def within(seconds: float, effect: Awaitable[Any]) -> Any:
    """Awaits an effect, and cuts it after `seconds`. Raises `TimedOut` then: it may have happened."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await effect
    except Exception as error:
        # The effect may answer the cancellation with an exception of its own. `Failed` states that it did not happen.
        if limit.expired() and not isinstance(error, Failed):
            raise TimedOut(f"cut after {seconds:g} s") from error
        raise
