"""Tracks calls that were answered since no call was in flight: a concurrent checkpoint may lack their answers.

call a    ├──────┤ answered
call b       ├───────────────┤
checkpoint          ├─┤          lists a as unanswered: its messages may precede the answer
checkpoint                     ├─┤  lists neither: no call is in flight
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager


class Recent:
    """Counts the calls in flight, and remembers which calls were answered meanwhile."""

    def __init__(self) -> None:
        # Reentrant, because a signal handler may take a checkpoint.
        self._lock = threading.RLock()
        self._in_flight = 0
        self._answered: dict[str, None] = {}
        self._checkpoints: list[dict[str, None]] = []

    def is_quiet(self) -> bool:
        """Whether no call is in flight."""
        return self._in_flight == 0

    @contextmanager
    def call(self) -> Generator[None, None, None]:
        """Counts a call in flight."""
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
                if self._in_flight == 0:
                    self._answered.clear()

    @contextmanager
    def checkpoint(self) -> Generator[dict[str, None], None, None]:
        """Begins a checkpoint. Returns the ids of calls whose answers its messages may lack; grows as calls are
        answered."""
        with self._lock:
            lacking = self._answered.copy()
            self._checkpoints.append(lacking)
        try:
            yield lacking
        finally:
            with self._lock:
                self._checkpoints = [other for other in self._checkpoints if other is not lacking]

    def answered(self, call_id: str) -> None:
        """Notes an answered call."""
        with self._lock:
            for calls in (self._answered, *self._checkpoints):
                calls[call_id] = None
