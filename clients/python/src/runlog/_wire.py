"""The commands of the core to its driver. The core consists of generators that yield these commands, without input
or output. So sync and async handles share every rule, and a test can stop an operation at every command."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

CONNECT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request to the server. Its result is a `Response`; the driver raises `NoResponse` if there is none."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float = 35.0
    """Seconds until the driver gives up; of a stream, the longest silence."""
    connect: float = CONNECT_TIMEOUT
    """Seconds until the driver gives up connecting."""
    server: str = ""
    """The URL of the server. Default: the first server of the configuration."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoResponse(Exception):
    """There was no complete answer."""

    def __init__(self, why: str, *, sent: bool, remedy: str | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        """Whether the server may have received the request."""
        self.remedy = remedy
        """The cause and the remedy, if another try does not help."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Acquires a lock or a semaphore of the driver. The result is false after the timeout."""

    lock: Any
    seconds: float


@dataclass(frozen=True, slots=True)
class Perform:
    """Runs the caller's code: the effect of a call. Returns its result, and raises its exceptions."""

    effect: Callable[[], Any]


Command: TypeAlias = Request | Sleep | Acquire | Perform
Steps: TypeAlias = Generator[Command, Any, T]
