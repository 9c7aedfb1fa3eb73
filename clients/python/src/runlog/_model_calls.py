"""Calls of tools that a model identifies by an id. Some model servers begin their ids anew in each answer, as `call_0`.

message 1   call_0 of pay ─▶ {id, args}             A message is counted if it calls the tool with the id, whatever the
message 2   call_0 of pay ─▶ {id, args, nth: 2}     arguments: texts that differ may be validated to equal arguments.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from ._json import Json, Refused, args_sha256, fingerprint
from .errors import Action, Conflict

ModelCall: TypeAlias = tuple[str | None, str]
"""The id and the tool."""


def with_number(args: dict[str, Json], call: ModelCall, messages: Sequence[Sequence[ModelCall]], run_id: str) -> Json:
    """The arguments to record for a call. If earlier messages of the conversation call the same tool with the same id, the
    arguments include the number of the call's message among them, so that the journal does not answer it as an earlier call.

    Raises `Conflict` if a message calls the tool twice with the id: the results would be ambiguous."""
    counts = [calls.count(call) for calls in messages]
    # The call belongs to the last message that contains it.
    last = next((count for count in reversed(counts) if count), 0)
    if last > 1:
        message = (
            f"the model made two calls of {call[1]} in one message with the same id {call[0]!r}: neither ran. Give the tool a key, "
            "or use a model server whose ids differ"
        )
        raise Conflict(message, action=Action.FIX_THE_INPUT, run_id=run_id)
    number = sum(count > 0 for count in counts)
    return {**args, "nth": number} if number > 1 else args


class AskingMessages:
    """The model's message that first asked for each call of a handle. If a program removes messages of a conversation, their calls
    are not counted any more, and a later call would get the answer of an earlier one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: weakref.WeakKeyDictionary[Any, dict[str, Hashable]] = weakref.WeakKeyDictionary()

    def check(self, run: Any, call: ModelCall, args: Json, message: Hashable) -> None:
        """Raises `Conflict` if another message asked for the same call."""
        call_id, tool = call
        try:
            identity = fingerprint(tool, args_sha256(args))
        except Refused:
            return  # `Run.call` refuses such arguments, with their place.
        with self._lock:
            first = self._messages.setdefault(run, {}).setdefault(identity, message)
        if first != message:
            text = (
                f"two messages of the model ask for the same call of {tool} in run {run.id}, with the same id {call_id!r}: the "
                "later call did not run. They belong to two conversations, or messages between them were removed. Give the tool "
                "a key, or the model all messages"
            )
            raise Conflict(text, action=Action.FIX_THE_INPUT, run_id=run.id)
