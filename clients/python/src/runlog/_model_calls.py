"""Calls of tools that a model identifies by an id. Some model servers begin their ids anew in each answer, as `call_0`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from ._json import Json
from .errors import Action, Conflict

ModelCall: TypeAlias = tuple[str | None, str, Any]
"""The id, the tool and the arguments."""


def numbered(recorded: dict[str, Json], call: ModelCall, messages: Sequence[Sequence[ModelCall]], run_id: str) -> Json:
    """The recorded arguments of a call. If earlier messages of the conversation contain the same call, with the same id, they
    include its number, so that the journal does not answer it as the earlier call.

    Raises `Conflict` if its own message contains it twice: their results would be ambiguous."""
    # Its own message is the last one with its id.
    for at in reversed(range(len(messages))):
        of_id = [other for other in messages[at] if other[0] == call[0]]
        if not of_id:
            continue
        # Its arguments may have been validated or changed since.
        own = call if call in of_id else of_id[0]
        if of_id.count(own) > 1:
            message = (
                f"the model made the same call of {own[1]} twice in one message, with the same id {own[0]!r}: neither ran. Give "
                "the tool a key, or use a model server whose ids differ"
            )
            raise Conflict(message, action=Action.FIX_THE_INPUT, run_id=run_id)
        number = sum(own in earlier for earlier in messages[:at]) + 1
        return {**recorded, "nth": number} if number > 1 else recorded
    return recorded
