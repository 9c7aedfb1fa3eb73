"""The writer of a run: claims it, and appends one request of records after the other.

    ready ──append──▶ unacknowledged ──answered──▶ ready
                        │   └── no answer, cancelled: settle() sends the same records again before anything else
                        └── refused as fenced ──▶ lost: results can only be left as evidence

Records that are sent again keep their ids and content, so that they are in the log once. A late first copy is a repeat.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ._api import Api, Object
from ._json import Json
from ._records import Record, Records, new_id, payload_type
from ._wire import Steps
from .errors import (
    Action,
    ClaimLost,
    Conflict,
    Error,
    Fenced,
    Forbidden,
    Happened,
    Invalid,
    MissingContent,
    Stale,
    TooLarge,
    Usage,
)

INTENTS = ("tool_call_requested", "tool_call_attempt")
"""Payload types that permit an effect."""
_KEPT_AS_EVIDENCE = (None, "fenced", "ended", "not_started_here", "transition")


def took_effect(outcome: Object) -> bool:
    """Whether a record was applied, now or when it was first appended."""
    return outcome.get("outcome") in ("applied", "repeat") and outcome.get("reason") is None


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a run. Every send has the same record id, so a copy of the claim never supersedes this process."""

    record_id: str
    writer_id: str
    epoch: int
    secret: bytes | None = field(repr=False)
    """The bytes whose SHA-256 is the claim's commitment. `None` if the server does not have the feature
    `commitments`."""
    shown: bytes | None = field(repr=False)
    """The secret of the writer's previous claim."""

    def handle(self) -> dict[str, Json]:
        """The members by which the server recognises the handle, so that calls which it started under earlier claims
        stay its own."""
        found: dict[str, Json] = {}
        if self.secret is not None:
            found["commitment"] = hashlib.sha256(self.secret).hexdigest()
        if self.shown is not None:
            found["shown"] = self.shown.hex()
        return found


class Writer:
    """Appends to one run. Its operations are serialised by its owner."""

    def __init__(self, api: Api, run_id: str) -> None:
        self.api = api
        self.run_id = run_id
        self.records = Records(api.config, run_id)
        self.writer_id = ""
        self.epoch = 0
        self.next_journal_seq = 1
        self.next_checkpoint_seq = 1
        self.seen: Object | None = None
        """The position of the run's last known record."""
        self.over: Error | None = None
        """The error for further appends, if the run was lost or ended."""
        self.ended: str | None = None
        """The status with which the run ended, if no other process has taken it over since."""
        self.unacknowledged: list[Record] | None = None
        """Records that were sent without an answer. They may be in the log."""
        self.numbers_unsure = False
        self._claim: Claim | None = None
        """A claim whose outcome is unknown."""
        self._secret: bytes | None = None
        """The secret of the last claim that took effect."""

    @property
    def lost(self) -> bool:
        """Whether another process has the run."""
        return isinstance(self.over, Fenced | ClaimLost)

    def claim_after(self, epoch: int, only_if: str | None = None, purpose: str = "") -> Steps[None]:
        """Claims the epoch after `epoch`. A retry after a failure or a cancellation sends the same claim.

        With `only_if`, the hash of the run's head in this epoch, the claim raises `Conflict` if the run then has another head,
        and fences no other process. The server must have the feature `only_if`. `purpose` is appended to the name of
        this process in the claim."""
        claim = yield from self._claim_of(epoch + 1)
        if only_if is None:
            yield from self._append_claim(claim)
        else:
            ids: Object = {"record_id": claim.record_id, "writer_id": claim.writer_id}
            claimed_by = self.api.config.claimed_by + purpose
            body = {**ids, "claimed_by": claimed_by, **claim.handle(), "only_if": {"hash": only_if}}
            try:
                yield from self.api.claim(self.run_id, body)
            except (ClaimLost, Conflict):
                self._claim = None
                raise
        self._begin(claim)

    def _claim_of(self, epoch: int) -> Steps[Claim]:
        """The claim of an epoch. While its outcome is unknown, the same claim is returned. A writer that claims its run
        again keeps its id."""
        if self._claim is None or self._claim.epoch != epoch:
            secret = shown = None
            if "commitments" in (yield from self.api.features()):
                secret, shown = secrets.token_bytes(32), self._secret
            self._claim = Claim(new_id(), self.writer_id or new_id(), epoch, secret, shown)
        return self._claim

    def _append_claim(self, claim: Claim) -> Steps[None]:
        payload = {
            "type": "run_claim",
            "writer_id": claim.writer_id,
            "epoch": claim.epoch,
            "claimed_by": self.api.config.claimed_by,
        }
        record = self.records.make(payload, record_id=claim.record_id)
        record |= {"writer_id": claim.writer_id, "writer_epoch": claim.epoch}
        if facts := claim.handle():
            record["facts"] = facts
        [outcome] = yield from self.api.append(self.run_id, [record])
        self._claim = None
        if not took_effect(outcome):
            if outcome.get("reason") == "fenced":
                raise ClaimLost(f"another process claimed run {self.run_id} first", run_id=self.run_id)
            raise self.refused(record, outcome)

    def _begin(self, claim: Claim) -> None:
        """Adopts a claim that was applied: records now have its writer id and epoch."""
        self.writer_id, self.epoch, self._secret = claim.writer_id, claim.epoch, claim.secret
        self._claim, self.over, self.unacknowledged = None, None, None

    def adopt(self, head: Object) -> bool:
        """Adopts this writer's claim if the run's head shows that it was applied, although its answer was lost. Returns
        whether it did."""
        claim = self._claim
        if claim is None or (head["writer_id"], head["epoch"]) != (claim.writer_id, claim.epoch):
            return False
        self._begin(claim)
        return True

    def sync(self, head: Object) -> None:
        """Takes the next numbers from the run's head. Raises if another process writes the run."""
        if (head["writer_id"], head["epoch"]) != (self.writer_id, self.epoch):
            raise self.not_writer_in(head["epoch"])
        self.next_journal_seq = head["next_journal_seq"]
        self.next_checkpoint_seq = head["next_checkpoint_seq"]
        self._note_position(head)
        self.numbers_unsure = False

    def _note_position(self, answer: Object) -> None:
        position: Object | None = answer.get("position")
        if position is not None and (self.seen is None or position["offset"] > self.seen["offset"]):
            self.seen = position

    def sync_if_unsure(self) -> Steps[None]:
        """Reads the next numbers after a refusal."""
        if self.numbers_unsure:
            head = yield from self.api.run(self.run_id)
            if head is None:
                raise self.not_writer_in(0)
            self.sync(head)

    def is_writer_in(self, answer: Object) -> bool:
        """Whether an answer names this writer as the run's writer."""
        return (answer["writer_id"], answer["epoch"]) == (self.writer_id, self.epoch)

    def wrote(self, outcome: Object) -> bool:
        """Whether this writer wrote the record with this outcome, and not another process under the same id.
        A server without the feature `record_writer` does not report it; ids are random, so they do not collide by
        chance."""
        return outcome.get("record_writer") is None or self.is_writer_in(outcome["record_writer"])

    def not_own(self, record_id: str, outcome: Object) -> Conflict:
        """Makes the error for an intent of another writer: its effect may have run there."""
        writer = outcome["record_writer"]
        message = (
            f"record {record_id} of run {self.run_id} belongs to writer {writer['writer_id']} in epoch {writer['epoch']}: the id "
            "was already in the log, and the effect was not run here"
        )
        return Conflict(message, run_id=self.run_id, record_id=record_id)

    def not_writer_in(self, seen: int) -> Error:
        """Makes the error for an answer that names another writer: the run is lost, unless the answer is older than
        the claim."""
        if seen < self.epoch:
            message = (
                f"an answer about run {self.run_id} is of epoch {seen}, older than this handle's {self.epoch}; retry"
            )
            return Stale(message, run_id=self.run_id)
        return self.lose(ClaimLost(f"another process claimed run {self.run_id}", run_id=self.run_id))

    def lose(self, error: Error) -> Error:
        """Marks the run as lost: another process writes it."""
        if not self.lost:
            self.over, self.ended = error, None
        return error

    def end(self, status: str) -> None:
        """Marks the run as ended."""
        self.ended, self.over = status, self.after_end(status, "it answers recorded calls and accepts no new record")

    def after_end(self, status: str, what: str, call: str | None = None) -> Conflict:
        """Makes the error for an operation that an ended run refuses."""
        message = f"run {self.run_id} is {status}: {what}"
        return Conflict(message, action=Action.FIX_THE_INPUT, run_id=self.run_id, record_id=call)

    def check_over(self) -> None:
        """Raises if no record can be appended any more."""
        if self.over is not None:
            raise self.over.copy()

    def refused(self, record: Record, outcome: Object) -> Error:
        """Makes the error for a refused record."""
        record_id, reason = str(record["record_id"]), str(outcome.get("reason"))
        if reason == "fenced":
            message = (
                f"record {record_id} of run {self.run_id} was refused as fenced; another process took the run over"
            )
            return Fenced(message, run_id=self.run_id, record_id=record_id)
        message = f"record {record_id} of run {self.run_id} was refused as {reason}: {outcome.get('detail') or ''}"
        return Conflict(message, run_id=self.run_id, record_id=record_id, problem={"reason": reason})

    def signed(self, record: Record) -> Record:
        """The record with this writer's id and epoch."""
        return {**record, "writer_id": self.writer_id, "writer_epoch": self.epoch}

    def append(self, records: Sequence[Record], *, read_back: bool = False) -> Steps[list[Object]]:
        """Appends records and returns their outcomes; all are applied. `read_back` as for `Api.append`.

        Raises `Fenced` or `Conflict` if a record was refused. After an error with `UNKNOWN`, or a cancellation, the
        records are in `unacknowledged`."""
        self.check_over()
        if self.unacknowledged is not None:
            raise AssertionError("an earlier append is not settled")
        self.unacknowledged = [self.signed(record) for record in records]
        try:
            outcomes = yield from self._send(self.unacknowledged, read_back)
        except Error as error:
            if error.happened is Happened.NOTHING:
                self.unacknowledged = None
            raise
        self.check(records, outcomes)
        return outcomes

    def settle(self) -> Steps[tuple[list[Record], list[Object]] | None]:
        """Resends the unacknowledged records. Returns them with their outcomes; `None` if there were none."""
        sent = self.unacknowledged
        if sent is None:
            return None
        try:
            outcomes = yield from self._send(sent)
        except (Invalid, Usage, TooLarge, MissingContent, Forbidden) as error:
            # The server never accepts these records, so it did not accept them the first time.
            self.unacknowledged = None
            if isinstance(error, Forbidden) and payload_type(sent[0]) == "effect_resolution":
                # The journal's state settles the call of this decision.
                return None
            raise
        return sent, outcomes

    def _send(self, records: list[Record], read_back: bool = False) -> Steps[list[Object]]:
        outcomes = yield from self.api.append(self.run_id, records, read_back=read_back)
        self.unacknowledged = None
        for record, outcome in zip(records, outcomes, strict=True):
            self._note(record, outcome)
        return outcomes

    def _note(self, record: Record, outcome: Object) -> None:
        self._note_position(outcome)
        if not took_effect(outcome) or payload_type(record) == "batch":
            # A refusal may consume numbers, and a batch consumes a number for each of its numbered records.
            self.numbers_unsure = True
            return
        self.next_journal_seq = max(self.next_journal_seq, (outcome.get("journal_seq") or 0) + 1)
        payload: Any = record["payload"]
        if payload.get("type") == "loop_checkpoint":
            self.next_checkpoint_seq = max(self.next_checkpoint_seq, payload["checkpoint_seq"] + 1)

    def check(self, records: Sequence[Record], outcomes: Sequence[Object]) -> None:
        """Raises if a record was refused, or is an intent of another writer. A fenced record loses the run."""
        for record, outcome in zip(records, outcomes, strict=True):
            if not took_effect(outcome):
                error = self.refused(record, outcome)
                raise self.lose(error) if isinstance(error, Fenced) else error
            if payload_type(record) in INTENTS and not self.wrote(outcome):
                raise self.not_own(str(record["record_id"]), outcome)

    def append_evidence(self, record: Record) -> Steps[bool]:
        """Appends a result for a writer that lost the run, or whose run ended. The journal refuses it and keeps it
        as evidence. Returns whether the journal keeps it."""
        [outcome] = yield from self.api.append(self.run_id, [self.signed(record)])
        return outcome.get("reason") in _KEPT_AS_EVIDENCE
