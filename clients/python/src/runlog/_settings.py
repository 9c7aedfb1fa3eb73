"""Keyword arguments that several functions accept: the settings of a connection, of an open run, and of a call."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypedDict

from ._divergence import OnDivergence
from ._ends import Ends
from ._redact import Redaction

if TYPE_CHECKING:
    from tenacity import Retrying


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


class Opening(TypedDict, total=False):
    """The options of `Runlog.open`, which explains them."""

    unless_active: float | None
    from_start: bool
    allow_unresolved: bool
    on_divergence: OnDivergence


class Calling(TypedDict, total=False):
    """The options of `Run.call`, which explains them."""

    key: str | None
    ends: Ends | None
    unique: bool
    repeatable: bool
    retry: Retrying | None
    decode: Callable[[Any], Any] | None
