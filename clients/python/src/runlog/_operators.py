"""The operators' part of a connection: lists runs, finds effects that wait for a decision, and decides.

undecided ─▶ Effect: as it was read, with its `revision` and `basis` ─▶ decide
                                              the effect changed since ─▶ Conflict; read it again
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from ._api import Api, Object, check_complete, query, run_path, segment
from ._json import Json, args_sha256, fingerprint
from ._marker import MARKER, read_marker
from ._operations import ABSENT
from ._values import arguments_json, to_json
from ._wire import Steps
from .errors import Conflict, ResultNotRecorded, Usage

PAGE = 100
DECISIONS = ("done", "adopt", "not_done", "give_up")
_STORED = "stored_payload"
_HAPPENED = ("completed", "deduped", "result_rewritten")
"""Ends of evidence that say that the effect happened."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect that may have happened, as it was read. A decision about it is refused if it has changed since."""

    run_id: str
    id: str
    """The record id of its request."""
    tool: str
    arguments: Any
    """`None` for an effect of another SDK."""
    reason: str
    """Why it must be decided."""
    state: str | None
    """`running` while its process has the run and wrote to it within 30 s, otherwise `waiting`."""
    idempotency_key: str | None
    evidence: tuple[Object, ...]
    """Results that the journal refused and kept, oldest first: `status`, `payload`, `logged_at`, …"""
    details: Object
    """Every member of the server's answer: `revision`, `basis`, `attempts`, …"""

    @staticmethod
    def of(run_id: str, found: Object, arguments: Any) -> Effect:
        """From the server's answer."""
        return Effect(
            run_id,
            found["id"],
            found["tool_name"],
            arguments,
            found["reason"],
            found.get("state"),
            found.get("idempotency_key"),
            tuple(found["evidence"]),
            found,
        )

    @property
    def against(self) -> str | None:
        """The record id of the evidence that says that the effect happened, and that `adopt` takes.

        `decide(…, "not_done", against=…)` names it."""
        happened = [piece for piece in self.evidence if piece["status"] in _HAPPENED]
        happened = [piece for piece in happened if piece.get("adoptable")] or happened
        return str(happened[-1]["record_id"]) if happened else None


def runs_page(api: Api, cursor: str | None, terms: Mapping[str, object]) -> Steps[tuple[list[Object], str | None]]:
    """A page of the list of runs, and the cursor of the next page."""
    page: Object = yield from api.get(f"/v1/runs{query(**terms, limit=PAGE, cursor=cursor, consistency='latest')}")
    check_complete(page, "runs")
    return page["runs"], page.get("next_cursor")


def undecided_page(api: Api, cursor: str | None, run_id: str | None) -> Steps[tuple[list[Effect], str | None]]:
    """A page of the effects that must be decided, with their contents, and the cursor of the next page."""
    if run_id is not None:
        recovery = yield from api.for_run().recovery(run_id, from_start=False, content=True)
        found: list[Object] = [of for of in recovery["pending"] if of["class"] != "retry_safe"] if recovery else []
        listed, next_cursor = [{**of, "run_id": run_id} for of in found], None
    else:
        terms = query(unsafe=True, limit=PAGE, cursor=cursor, consistency="latest")
        page: Object = yield from api.get(f"/v1/effects{terms}")
        check_complete(page, "effects")
        listed, next_cursor = page["effects"], page.get("next_cursor")
    effects: list[Effect] = []
    for one in listed:
        effects.append((yield from _with_contents(api, one)))
    return effects, next_cursor


def _with_contents(api: Api, found: Object) -> Steps[Effect]:
    """Reads arguments and evidence from the content store, if they are there."""
    api, run_id = api.for_run(), found["run_id"]
    if any(_is_stored(piece.get("payload")) for piece in found["evidence"]):
        recovery = yield from api.recovery(run_id, from_start=False, content=True)
        now = [of for of in recovery["pending"] if of["id"] == found["id"]] if recovery else []
        # Takes all members from one answer: a decision names the revision and the basis of the evidence that was shown.
        found = {**found, **now[0]} if now else found
    arguments = found.get("arguments", ABSENT)
    if found["kind"] == "tool_call" and (arguments is ABSENT or _is_stored(arguments)):
        arguments = (yield from api.call(run_id, found["id"]))["arguments"]
    return Effect.of(run_id, found, None if arguments is ABSENT else arguments)


def _is_stored(payload: Any) -> bool:
    return isinstance(payload, dict) and cast(Object, payload).get("type") == _STORED


def decide(
    api: Api, effect: Effect, decision: str, result: Any, who: str, why: str, against: str | None, force: bool
) -> Steps[None]:
    """Records a decision about an effect in the state in which it was read."""
    api, body = api.for_run(), _decision(effect, decision, result, who, why, against)
    if force:
        body["force"] = True
    try:
        yield from api.post(f"{run_path(effect.run_id)}/effects/{segment(effect.id)}/resolution", body)
    except Conflict:
        # The first copy of the decision was applied, and its answer was lost: the second copy is a conflict.
        if not (yield from _is_recorded(api, effect, body)):
            raise


def _decision(effect: Effect, decision: str, result: Any, who: str, why: str, against: str | None) -> dict[str, Json]:
    """Checks a decision, and makes its body."""
    if decision not in DECISIONS:
        raise Usage(f"a decision is one of {', '.join(DECISIONS)}, not {decision!r}")
    if (decision == "done") is (result is ABSENT):
        raise Usage("`done` needs the effect's `result`, which may be None; other decisions have none")
    revision, basis = effect.details.get("revision"), effect.details.get("basis")
    if not revision or not basis:
        raise Usage(
            f"effect {effect.id} of run {effect.run_id} has no revision and basis: its server is too old to decide from here"
        )
    body: dict[str, Json] = {"decision": decision, "who": who, "why": why, "revision": revision, "basis": basis}
    if decision == "done":
        body["result"] = to_json(result)
    if decision == "adopt":
        adoptable = [str(piece["record_id"]) for piece in effect.evidence if piece.get("adoptable")]
        if not adoptable:
            raise Usage(f"effect {effect.id} of run {effect.run_id} has no evidence to adopt")
        body["evidence"] = adoptable[-1]
    if decision == "not_done":
        if against != effect.against:
            raise Conflict(_contradicted(effect, against), run_id=effect.run_id, record_id=effect.id)
        if against is not None:
            body["evidence"] = against
    elif against is not None:
        raise Usage("only `not_done` is decided `against` evidence")
    return body


def _contradicted(effect: Effect, against: str | None) -> str:
    what = f"effect {effect.id} of run {effect.run_id}"
    if effect.against is None:
        return f"{what}: no evidence says that it happened; decide without against={against!r}. Nothing was recorded"
    return (
        f"{what}: record {effect.against} is evidence that it happened: decide `adopt`, or `not_done` with "
        f"against={effect.against!r} if the effect did not happen. Nothing was recorded"
    )


def _is_recorded(api: Api, effect: Effect, body: Mapping[str, Json]) -> Steps[bool]:
    """Whether the same decision, at this revision of the effect, was applied."""
    order = "desc" if "order" in (yield from api.features()) else None
    terms = query(
        family="effect_resolution", kind=body["decision"], whole=True, order=order, limit=PAGE, consistency="latest"
    )
    page: Object | None = yield from api.find(f"{run_path(effect.run_id)}/records{terms}")
    names = ("decision", "who", "why", "result")
    for line in page["records"] if page is not None else ():
        record: Object = line.get("record") or {}
        payload: Object = record.get("payload") or {}
        facts: Object = record.get("facts") or {}
        same = all(payload.get(name) == body.get(name) for name in names)
        of_effect = payload.get("request_record_id") == effect.id and facts.get("revision") == body["revision"]
        if same and of_effect and _names_evidence(effect, body, facts.get("evidence")):
            return True
    return False


def _names_evidence(effect: Effect, body: Mapping[str, Json], recorded: Json) -> bool:
    """Whether a recorded decision names the evidence of `body`.

    At schema version 2 the server records another piece that the author of a `not_done` saw."""
    named = body.get("evidence")
    if body["decision"] != "not_done" or named is None:
        return recorded == named
    return any(piece["record_id"] == recorded and piece["status"] in _HAPPENED for piece in effect.evidence)


def lookup(api: Api, run_id: str, tool: str, args: object, occurrence: int | None) -> Steps[Object]:
    """Looks a call up: `status`, `result`, `error`, …"""
    api, of_call = api.for_run(), fingerprint(tool, args_sha256(arguments_json(args)))
    terms = query(tool=tool, fingerprint=of_call, occurrence=occurrence, consistency="latest")
    found: Object = yield from api.get(f"{run_path(run_id)}/lookup{terms}")
    result: Any = found.get("result")
    mark: Any = cast(Object, result).get(MARKER) if isinstance(result, dict) else None
    call = str(cast(Object, mark).get("call")) if isinstance(mark, dict) else ""
    if (marked := read_marker(call, cast(object, result))) is None:
        return found
    ended = yield from api.find(f"{run_path(run_id)}/calls/{segment(call)}?consistency=latest")
    if ended is None or (ended["fingerprint"], ended["occurrence"]) != (found["fingerprint"], found["occurrence"]):
        return found  # the marker of another call is a result
    message = (
        f"call {call} of {tool} in run {run_id} is completed; its result was not recorded: {marked.get('message')}"
    )
    raise ResultNotRecorded(message, marker=marked, run_id=run_id)
