"""Makes records to send. Ids come from the system's randomness; the server fills in the numbers."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Mapping, Sequence

from ._json import Json, encode
from .config import Config

Record = dict[str, Json]


def bytes_of(told: str | Mapping[str, str]) -> bytes:
    """Decodes bytes of an answer."""
    return bytes.fromhex(told) if isinstance(told, str) else base64.b64decode(told["base64"])


def new_id() -> str:
    """A new id, from the system's randomness."""
    return str(uuid.uuid4())


def digest(*parts: object) -> str:
    """The value of a correlation entry: short for parts of any length."""
    return hashlib.sha256(encode([str(part) for part in parts]).encode()).hexdigest()


class Records:
    """Makes the records of one run."""

    def __init__(self, config: Config, run_id: str) -> None:
        self.config = config
        self.run_id = run_id
        self.base64 = False
        """Whether the server accepts bytes as base64, which is shorter than hexadecimal."""

    def make(self, payload: Mapping[str, Json], *, key: str | None = None, record_id: str | None = None) -> Record:
        """Makes a record without a writer."""
        record: Record = {
            "run_id": self.run_id,
            "record_id": record_id or new_id(),
            "agent_id": self.config.agent,
            "payload": payload,
        }
        if key is not None:
            record["idempotency_key"] = key
        if self.config.redaction is not None:
            record["redaction_policy_id"] = self.config.redaction.policy_id
        return record

    def not_done(self, request: str, epoch: int) -> Record:
        """Makes the decision, in the writer's own name, that the effect of `request` did not happen.

        The journal applies it only while this writer has the run. Without the scope `resolve`, no other epoch may
        have started the effect."""
        payload: Mapping[str, Json] = {
            "type": "effect_resolution",
            "request_record_id": request,
            "decision": "not_done",
            "who": f"{self.config.agent}, {self.config.claimed_by}",
            "why": "this process recorded the intent and never started the effect",
        }
        return {**self.make(payload), "facts": {"epoch": epoch}}

    def host(self, family: str, payload_type: str, content: bytes, correlation: Sequence[tuple[str, str]]) -> Record:
        """A numbered record with content of another SDK, found by its correlation entries."""
        source: Json = {"kind": "host", "id": "runlog", "trust": "host_provided", "privacy": "internal"}
        subject: Json = {"kind": "run", "id": self.run_id, "privacy": "internal"}
        record = self.make(
            {
                "type": "host_payload",
                "family": family,
                "payload_type": payload_type,
                "schema_version": 1,
                "content_type": "application/json",
                "bytes": {"base64": base64.b64encode(content).decode()} if self.base64 else content.hex(),
            }
        )
        record["record_kind"] = "telemetry"
        record["event_index"] = {
            "run_id": self.run_id,
            "agent_id": self.config.agent,
            "event_family": family,
            "event_kind": payload_type,
            "source": source,
            "subject_ref": subject,
            "privacy_class": "internal",
            "delivery_semantics": "journal_backed",
            "correlation_keys": [{"key": key, "value": value} for key, value in correlation],
        }
        return record


def payload_of(record: Mapping[str, Json]) -> Mapping[str, Json]:
    """The payload of a record."""
    payload = record["payload"]
    return payload if isinstance(payload, Mapping) else {}


def payload_type(record: Mapping[str, Json]) -> str:
    """The type of its payload."""
    return str(payload_of(record).get("type"))


def lifecycle(status: str, reason: str = "") -> dict[str, Json]:
    """The payload that starts or ends a run."""
    return {"type": "run_lifecycle", "status": status, "reason": reason}
