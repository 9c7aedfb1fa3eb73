// Makes records to send. Ids come from the system's randomness; the server fills in the numbers.

import type { Config } from "./config.js";
import { encode, isObject, type Json, type JsonObject } from "./json.js";
import { sha256Hex, utf8 } from "./sha256.js";
import { base64 } from "./values.js";

export type Payload = JsonObject & { readonly type: string };
export interface Record extends JsonObject {
  readonly run_id: string;
  readonly record_id: string;
  readonly payload: Payload;
}

/** Payload types that permit an effect. */
export const INTENTS: readonly string[] = ["tool_call_requested", "tool_call_attempt"];
export const RESULTS: readonly string[] = ["tool_call_completed", "tool_call_failed"];

/** A new id, from the system's randomness. */
export const newId = (): string => crypto.randomUUID();

/** The value of a correlation entry: short for parts of any length. */
export const digest = (...parts: readonly (string | number)[]): string => sha256Hex(encode(parts.map(String)));

/** The request that a payload ends or repeats. */
export const requestOf = (record: Record): string => String(record.payload["request_record_id"]);

/** The payload that starts or ends a run. */
export const lifecycle = (status: string, reason = ""): Payload => ({ type: "run_lifecycle", status, reason });

/** Makes the records of one run. */
export class Records {
  constructor(readonly config: Config, readonly runId: string) {}

  /** Makes a record without a writer. */
  make(payload: Payload, members: { key?: string; recordId?: string; facts?: Json } = {}): Record {
    const record: { [name: string]: Json } & { run_id: string; record_id: string; payload: Payload } = {
      run_id: this.runId,
      record_id: members.recordId ?? newId(),
      agent_id: this.config.agent,
      payload,
    };
    if (members.key !== undefined) record["idempotency_key"] = members.key;
    if (members.facts !== undefined) record["facts"] = members.facts;
    if (this.config.redaction) record["redaction_policy_id"] = this.config.redaction.policyId;
    return record;
  }

  /** Makes a numbered record with content of another SDK, found by its correlation entries. */
  host(family: string, payloadType: string, content: Json, journalSeq: number | undefined, correlation: readonly (readonly [string, string])[]): Record {
    const { runId: run_id, config: { agent: agent_id } } = this;
    const payload = {
      type: "host_payload", family, payload_type: payloadType, schema_version: 1, content_type: "application/json",
      bytes: { base64: base64(utf8(encode(content))) },
    };
    const event_index = {
      run_id, agent_id, event_family: family, event_kind: payloadType,
      source: { kind: "host", id: "runlog", trust: "host_provided", privacy: "internal" },
      subject_ref: { kind: "run", id: run_id, privacy: "internal" },
      privacy_class: "internal", delivery_semantics: "journal_backed",
      correlation_keys: correlation.map(([key, value]) => ({ key, value })),
    };
    const number = journalSeq === undefined ? {} : { journal_seq: journalSeq };
    return { ...this.make(payload), ...number, record_kind: "telemetry", event_index } as Record;
  }

  /** Makes the decision, in the writer's own name, that the effect of `request` did not happen.
   *
   * The journal applies it only while this writer has the run. Without the scope `resolve`, no other epoch may have started the
   * effect. */
  notDone(request: string, epoch: number): Record {
    const payload: Payload = {
      type: "effect_resolution",
      request_record_id: request,
      decision: "not_done",
      who: `${this.config.agent}, ${this.config.claimedBy}`,
      why: "this process recorded the intent and never started the effect",
    };
    return this.make(payload, { facts: { epoch } });
  }
}

/** Reads a record of an answer. */
export const recordOf = (found: Json | undefined): JsonObject => (isObject(found) ? found : {});
