"""The attempts of an effect: a policy of tenacity decides about each further attempt.

    effect raises ─▶ may have happened ─▶ safe to repeat, and the policy says so ─▶ pause ─▶ attempt recorded ─▶ effect
                  └▶ did not happen      otherwise: the call stays pending
                     finally: recorded

The driver of the connection waits, not tenacity.
"""

from __future__ import annotations

from typing import Any

from tenacity import DoSleep, RetryCallState, Retrying, stop_never

from .errors import Usage


def check_policy(policy: object, tool: str, *, is_safe: bool) -> None:
    """Raises `Usage` for a policy that is not one of tenacity, that never ends, or whose call is not safe to repeat."""
    if not isinstance(policy, Retrying):
        raise Usage(f"retry of {tool} is a tenacity.Retrying(…), not a {type(policy).__name__}")
    if policy.stop is stop_never:
        raise Usage(f"retry of {tool} never ends: give it a stop, as in tenacity.Retrying(stop=stop_after_attempt(3))")
    if not is_safe:
        raise Usage(
            f"retry of {tool} may repeat its effect: give it a key (`key=`) that the receiver recognises, or repeatable=True if "
            "running it again does no harm. Without either, leave out retry: after an exception the call waits for a decision"
        )


class Attempts:
    """Decides about further attempts of one effect in this process."""

    def __init__(self, policy: Retrying) -> None:
        self._policy = policy.copy()
        self._policy.begin()
        self._state = RetryCallState(self._policy, None, (), {})
        self._policy.iter(self._state)

    def pause(self, error: Exception) -> float | None:
        """The seconds until the next attempt. `None` for no other attempt, also if the policy raises."""
        self._state.set_exception((type(error), error, error.__traceback__))
        try:
            step: Any = self._policy.iter(self._state)
            if not isinstance(step, DoSleep):
                return None
            self._state.prepare_for_next_attempt()
            self._policy.iter(self._state)
        except Exception:
            return None
        return float(step)
