// The members of the server's answers that this client reads. `types/agree.ts` compares them with the server's OpenAPI document.

import type { Json } from "./json.js";

export interface Journal {
  journal_id: string;
  features?: string[];
}

export interface Position {
  partition: number;
  offset: number;
  index?: number;
  log?: string | null;
}

export interface Writer {
  writer_id: string;
  epoch: number;
}

/** A run's head. */
export interface Head {
  writer_id: string;
  epoch: number;
  status: string;
  hash: string;
  position?: Position | null;
  age_millis?: number | null;
  next_journal_seq: number;
  next_checkpoint_seq: number;
}

/** The outcome of an appended record. */
export interface Outcome {
  outcome: string;
  reason?: string | null;
  detail?: string | null;
  record_id: string;
  journal_seq?: number | null;
  position?: Position | null;
  record_writer?: Writer | null;
  writer?: Writer | null;
  /** In a read-back: the call has changed since the record, which then permits no effect. */
  changed?: boolean;
}

/** The outcome of a record that is read back, with the run's writer. */
export interface ReadBack {
  outcome: string;
  reason?: string | null;
  detail?: string | null;
  record_writer?: Writer | null;
  writer_id: string;
  epoch: number;
  /** Whether the call has changed since the record, which then permits no effect. */
  changed?: boolean;
}

/** A result that the journal refused and kept. */
export interface Evidence {
  record_id: string;
  status: string;
  adoptable: boolean;
  logged_at?: string | null;
  payload?: Json;
}

/** A call that ended after the checkpoint. */
export interface Completed {
  id: string;
  status: string;
  fingerprint: string;
  tool_name: string;
  journal_seq: number;
  occurrence?: number;
  idempotency_key?: string | null;
}

/** An effect that may have happened. `fingerprint` is absent for an effect that no call of an agent can match. */
export interface Pending {
  kind: string;
  id: string;
  tool_name: string;
  fingerprint?: string | null;
  class: string;
  reason: string;
  attempts: number;
  journal_seq: number;
  occurrence?: number | null;
  idempotency_key?: string | null;
  evidence: Evidence[];
  /** Further refused results that were replaced. */
  evidence_dropped?: number;
  revision?: number;
  basis?: string | null;
  state?: string | null;
}

export interface Checkpoint {
  checkpoint_id: string;
  checkpoint_seq?: number;
  covers_journal_seq: number;
  unanswered?: string[];
  messages?: Json[];
  state?: Json;
}

/** A recovery, one page or all pages. */
export interface RecoveryAnswer {
  status: string;
  resumable: boolean;
  reason?: string | null;
  writer_id: string;
  epoch: number;
  hash?: string;
  next_journal_seq: number;
  next_checkpoint_seq: number;
  position?: Position | null;
  checkpoint?: Checkpoint | null;
  completed: Completed[];
  pending: Pending[];
  approvals: unknown[];
  wakes: unknown[];
  messages: unknown[];
  write_backs: unknown[];
  missing_content: MissingRecord[];
  next_cursor?: string | null;
}

/** A record whose content cannot be read. */
export interface MissingRecord {
  record_id: string;
  payload_type: string;
}

export interface LostContent {
  payload_type: string;
  reason?: string;
}

/** A recorded call. */
export interface CallAnswer {
  status: string;
  tool_name: string | null;
  fingerprint: string;
  occurrence?: number | null;
  arguments?: Json;
  result?: Json;
  error?: { kind: string; message: string } | null;
  missing_content: LostContent[];
  dropped: LostContent[];
}

/** A call that a lookup found. */
export interface LookupAnswer {
  status: string;
  fingerprint: string;
  occurrence?: number | null;
  occurrences?: number;
  result?: Json;
  error?: { kind: string; message: string } | null;
  position?: Position | null;
  request_record_id?: string | null;
}

/** A record in a list. */
export interface RecordLine {
  record_id: string;
  epoch: number;
  payload_type?: string;
  /** The whole record, if the query asked for it and its content can be read. */
  record?: Json;
  payload?: Json;
}

/** A page of a run's records. */
export interface RecordsPage {
  records: RecordLine[];
  next_cursor?: string | null;
}
