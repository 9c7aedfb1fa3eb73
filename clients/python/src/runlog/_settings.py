"""The settings of a connection as keyword arguments; `Config` explains them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypedDict

from ._redact import Redaction


class Settings(TypedDict, total=False):
    """The members of `Config`, but the URL."""

    agent: str
    claimed_by: str
    token: str | None
    token_file: str | os.PathLike[str] | None
    ca: str | os.PathLike[str] | None
    client_cert: tuple[str, str] | None
    deadline: float
    connect_deadline: float
    read_back: float
    calls_max: int
    redaction: Redaction | None
    traceparent: Callable[[], str | None]
