"""What the core asks of its driver. The core is generators that yield these commands: it does no input or output itself,
so that sync and async handles share every rule, and a test can stop an operation at every command."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server. Its result is a `Response`; the driver raises `NoResponse` if there is none."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 35.0
    """Seconds until the driver gives up."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoResponse(Exception):
    """There was no whole answer."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        """Whether the server may have received the request."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Acquires a lock or a semaphore of the driver. The result says whether it did within the time."""

    lock: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Perform:
    """Runs code of the caller: the effect of a call. The result is what it returns; what it raises is raised."""

    effect: Callable[[], Any]


Command: TypeAlias = Request | Sleep | Acquire | Perform
Steps: TypeAlias = Generator[Command, Any, T]
