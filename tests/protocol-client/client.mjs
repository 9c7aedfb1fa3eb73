// A client of Runlog for Node, without dependencies, written from docs/protocol.md alone.
//
//   const run = new Run({ server, run: "trip-1", agent: "travel-agent", gate: "one" });
//   const { ended, checkpoint } = await run.open("host a, process 4711");
//   const result = await run.call(1, { tool: "pay", args: { to: "jo" } }, async ({ key, attempt }) => pay(...));
//   await run.checkpoint(messages, state);
//   await run.end();
//
// Record ids follow from the number of the step, so that a restarted process asks for the same ids.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

/** The process must start nothing more: another process has the run, or it is unknown whether an effect happened. */
export class Stopped extends Error {}
/** An effect throws it if it is certain that it did not happen. */
export class NotDone extends Error {}
/** An effect throws it if it does not know whether it happened. */
export class Unsure extends Error {}
/** The recorded failure of a call. An effect that throws anything else has failed. */
export class CallFailed extends Error {}
/** An error of the server that says what happened: `kind` decides. */
export class Problem extends Error {
  constructor(body) {
    super(`${body.kind}: ${body.detail ?? body.title}`);
    this.kind = body.kind;
    this.reason = body.reason;
  }
}
/** No answer, or an answer that leaves the outcome unknown. The same request may be sent again. */
class Unknown extends Error {}

const UNKNOWN_KINDS = ["stale", "unavailable", "partition_stopped", "internal", "overloaded"];
const NEEDED = ["claim_ids", "record_writer", "revisions"];

export class Run {
  /**
   * gate: "one" appends and reads back in one request, "two" in two.
   * lookFirst: false sends the intent without a lookup before it, and lets the answer say whether the call was made.
   * patience: milliseconds after which an unanswered request is given up; timeout: of one request.
   */
  constructor({ server, run, agent, gate = "one", lookFirst = true, timeout = 2000, patience = 60000, log = () => {} }) {
    Object.assign(this, { server, run, agent, gate, lookFirst, timeout, patience, log });
    this.path = `/v1/runs/${encodeURIComponent(run)}`;
    this.writer = null; // writer id and epoch of the claim
    this.started = new Set(); // record ids of the intents and attempts whose effect was started since the claim
    this.refusedAttempts = new Map(); // by call and number: how many record ids are spoilt
  }

  // ---- requests

  /** One request, sent once. */
  async send(method, path, body) {
    let response, text;
    try {
      response = await fetch(this.server + path, {
        method,
        headers: body === undefined ? {} : { "Content-Type": "application/json" },
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: AbortSignal.timeout(this.timeout),
        redirect: "error",
      });
      text = await response.text();
    } catch (error) {
      throw new Unknown(`no answer: ${error.cause?.code ?? error.message}`);
    }
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      throw new Unknown(`status ${response.status} without JSON`);
    }
    if (response.status === 200) return answer;
    if (typeof answer?.kind !== "string") throw new Unknown(`status ${response.status} without kind`);
    if (UNKNOWN_KINDS.includes(answer.kind)) {
      const unknown = new Unknown(`${answer.kind}: ${answer.detail}`);
      unknown.after = 1000 * Number(response.headers.get("Retry-After") ?? 0);
      throw unknown;
    }
    if (answer.kind === "claim_lost" || answer.kind === "fenced") throw new Stopped(`${answer.kind}: ${answer.detail}`);
    throw new Problem(answer);
  }

  /** Repeats a request until an answer shows the outcome. `complete` decides whether an answer does. */
  async ask(method, path, body, complete = () => true) {
    const end = Date.now() + this.patience;
    for (let turn = 0; ; turn++) {
      try {
        const answer = await this.send(method, path, body);
        if (complete(answer)) return answer;
        throw new Unknown("an answer without the members that it must have");
      } catch (error) {
        if (!(error instanceof Unknown)) throw error;
        if (Date.now() > end) throw new Stopped(`gave up ${method} ${path}: ${error.message}`);
        this.log(`again: ${method} ${path} ${body?.record_id ?? ""}: ${error.message}`);
        await sleep(error.after || Math.min(1000, 50 * 2 ** turn) * (0.5 + Math.random()));
      }
    }
  }

  get(path) {
    return this.ask("GET", this.path + path);
  }

  /** Appends a record; resent until it is judged. A refusal that says that the run was taken over stops the process. */
  async append(recordId, payload, { query = "", ...members } = {}) {
    const record = {
      run_id: this.run,
      record_id: recordId,
      agent_id: this.agent,
      writer_id: this.writer.writer_id,
      writer_epoch: this.writer.epoch,
      ...members,
      payload,
    };
    const answer = await this.ask("POST", `${this.path}/records${query}`, record, (a) => typeof a?.outcome === "string");
    const whose = this.isMe(answer.record_writer) ? "" : " of another writer";
    this.log(`${recordId}: ${answer.outcome}${answer.reason ? ` ${answer.reason}` : ""}${whose}`);
    if (answer.reason === "fenced") throw new Stopped(`${recordId} is fenced`);
    return answer;
  }

  isMe(writer) {
    return writer?.writer_id === this.writer.writer_id && writer?.epoch === this.writer.epoch;
  }

  // ---- the run

  /** Claims the run, recovers it, and waits until no call of it must be decided. */
  async open(claimedBy) {
    const { features } = await this.ask("GET", "/v1/journal");
    const missing = NEEDED.filter((name) => !features?.includes(name));
    if (missing.length) throw new Error(`the server lacks ${missing}`);
    if (!features.includes("read_back")) this.gate = "two";
    this.facts = features.includes("bases") ? { facts: { unresolved: "refuse" } } : {};

    const claim = { record_id: `claim-${randomUUID()}`, claimed_by: claimedBy };
    const { writer_id, epoch } = await this.ask("POST", `${this.path}/claims`, claim, (a) => a?.writer_id && a.epoch);
    this.writer = { writer_id, epoch };
    this.log(`claimed ${writer_id} epoch ${epoch}`);

    const recovery = await this.whenDecided();
    this.nextCheckpoint = recovery.next_checkpoint_seq;
    return { ended: recovery.status !== "open", status: recovery.status, checkpoint: recovery.checkpoint };
  }

  /** The state from which the run resumes; all its pages. */
  async recover() {
    const all = await this.get("/recovery?full=true");
    for (let cursor = all.next_cursor; cursor; ) {
      const page = await this.get(`/recovery?full=true&cursor=${encodeURIComponent(cursor)}`);
      all.completed.push(...page.completed);
      all.pending.push(...page.pending);
      cursor = page.next_cursor;
    }
    if (!this.isMe(all)) throw new Stopped(`${all.writer_id} has the run in epoch ${all.epoch}`);
    return all;
  }

  /** Waits for the decisions about the calls that may have happened and are not safe to repeat. */
  async whenDecided() {
    for (let turn = 0; ; turn++) {
      const recovery = await this.recover();
      const undecided = recovery.pending.filter((call) => call.class !== "retry_safe");
      if (recovery.status !== "open" || !undecided.length) return recovery;
      if (turn % 10 === 0) this.log(`waits for decisions about ${undecided.map((call) => call.id)}`);
      await sleep(300);
    }
  }

  /** Stores messages and state. A checkpoint that is refused is no loss: the run continues from the previous checkpoint. */
  async checkpoint(messages, state) {
    // The whole list, without a base: a base needs a hash over Avro bytes.
    const { next_journal_seq, ...run } = await this.get("");
    if (!this.isMe(run)) throw new Stopped(`${run.writer_id} has the run in epoch ${run.epoch}`);
    const seq = this.nextCheckpoint++;
    const answer = await this.append(`checkpoint-${seq}`, {
      type: "loop_checkpoint",
      checkpoint_id: `checkpoint-${seq}`,
      checkpoint_seq: seq,
      covers_journal_seq: next_journal_seq - 1,
      schema_version: 1,
      messages,
      state,
    });
    return answer.outcome !== "refused" && answer.reason === null;
  }

  async end() {
    const answer = await this.append("end", { type: "run_lifecycle", status: "completed" });
    if (answer.outcome === "refused" || answer.reason !== null) {
      const { status } = await this.get("");
      if (status === "open") throw new Error(`the end is ${answer.outcome}: ${answer.reason}`);
    }
  }

  // ---- calls

  async lookup({ tool, args, occurrence = 1 }) {
    const query = new URLSearchParams({ tool, args: JSON.stringify(args), occurrence });
    return this.get(`/lookup?${query}`);
  }

  /** The pending call with this id, or undefined if it is not pending. */
  async pending(id) {
    return (await this.recover()).pending.find((call) => call.id === id);
  }

  /**
   * Makes the call of a step, or returns what an earlier process recorded about it. `effect({ key, attempt })` returns
   * the result, or throws NotDone, Unsure, or an error that is recorded as the call's failure.
   */
  async call(step, call, effect) {
    const id = `step-${step}`;
    for (let look = this.lookFirst; ; look = true) {
      const found = look ? await this.lookup(call) : { status: "unknown" };
      if (found.status === "completed") return found.result;
      if (found.status === "failed") throw new CallFailed(`${found.error?.kind}: ${found.error?.message}`);

      const attempt = found.status === "unknown" ? await this.request(id, step, call) : await this.again(id);
      if (!attempt) continue;
      const end = await outcomeOf(() => effect({ key: call.key, attempt: attempt.number, record: attempt.recordId }));
      if (end.result !== undefined) {
        await this.result(attempt, { type: "tool_call_completed", request_record_id: id, result: end.result });
      } else if (end.error instanceof NotDone) {
        await this.notDone(attempt, id, end.error.message);
      } else if (end.error instanceof Unsure) {
        this.log(`${attempt.recordId}: nobody knows whether it happened: ${end.error.message}`);
        if (!call.key) throw new Stopped(`${id} may have happened: ${end.error.message}`);
      } else {
        const failed = { error_kind: end.error.kind ?? end.error.name, error_message: end.error.message };
        await this.result(attempt, { type: "tool_call_failed", request_record_id: id, ...failed });
      }
      // Whatever the journal has by now is the answer.
    }
  }

  /** Appends the intent of a new call. Returns the attempt if its effect may run. */
  async request(id, step, { tool, args, key }) {
    const payload = {
      type: "tool_call_requested",
      request_id: `response-${step}`,
      call_id: `call-${step}`,
      tool_name: tool,
      arguments: args,
    };
    const answer = await this.permit(id, id, payload, { ...this.facts, ...(key && { idempotency_key: key }) });
    if (answer.refused) throw new Stopped(`the intent ${id} is refused: ${answer.refused}`);
    return answer.permitted && { recordId: id, number: 1 };
  }

  /** Appends an attempt of a pending call, or waits for its decision. Returns the attempt if its effect may run. */
  async again(id) {
    const pending = await this.pending(id);
    if (!pending) return null;
    if (pending.class !== "retry_safe") {
      await sleep(300);
      return null;
    }
    const number = pending.attempts + 1;
    const base = `${id}-attempt-${number}`;
    const spoilt = this.refusedAttempts.get(base) ?? 0;
    const recordId = spoilt ? `${base}-try-${spoilt + 1}` : base;
    const payload = { type: "tool_call_attempt", request_record_id: id, attempt: number, reason: "retry_safe" };
    try {
      const answer = await this.permit(recordId, id, payload);
      if (answer.refused) this.refusedAttempts.set(base, spoilt + 1);
      return answer.permitted && { recordId, number };
    } catch (error) {
      // `reconcile_required`: a result arrived after all. `invalid`: there is an attempt with this number by now.
      if (!(error instanceof Problem) || !["reconcile_required", "invalid", "conflict"].includes(error.kind)) throw error;
      this.log(`${recordId}: ${error.message}`);
      await sleep(100);
      return null;
    }
  }

  /** Appends an intent or an attempt and reads it back: { permitted } tells whether its effect may run now. */
  async permit(recordId, callId, payload, members = {}) {
    const query = this.gate === "one" ? "?consistency=latest" : "";
    const asked = Date.now();
    this.log(`asks to start ${recordId}`);
    const answer = await this.append(recordId, payload, { query, ...members });
    if (answer.outcome === "refused" || answer.reason !== null) return { refused: answer.reason ?? "refused" };
    if (answer.outcome !== "applied" && answer.outcome !== "repeat") return {};
    let read = this.gate === "one" ? answer : null;
    let since = asked;
    // An operator may decide once some time has passed. So the read-back is a few seconds old at most, and of a repeat a new one.
    while (!read || (read === answer && answer.outcome === "repeat") || Date.now() - since > 3_000) {
      since = Date.now();
      const at = new URLSearchParams({ position: positionOf(answer), record_id: recordId });
      read = await this.get(`/outcome?${at}`);
      if (read.outcome !== "applied") return {};
    }
    const writer = read.writer ?? read;
    if (!this.isMe(writer)) throw new Stopped(`${writer?.writer_id} has the run in epoch ${writer?.epoch}`);
    if (!this.isMe(read.record_writer)) return {}; // another process's: it is pending or ended
    if (read.changed || this.started.has(recordId)) return {};
    if (Date.now() - asked > 20_000) {
      // A read-back is no write: an operator may decide at any moment.
      await this.notDone({ recordId }, callId, "not started");
      return {};
    }
    this.started.add(recordId);
    return { permitted: true };
  }

  /** Appends what a call returned. If it is refused because the call was decided, the journal's answer counts. */
  async result({ recordId }, payload) {
    const answer = await this.append(`${recordId}-result`, payload);
    if (answer.outcome === "refused" || answer.reason !== null) this.log(`${recordId}: result refused: ${answer.reason}`);
  }

  /** Records that an effect that this epoch alone has started did not happen: it may run again. */
  async notDone({ recordId }, id, why) {
    const payload = { type: "effect_resolution", request_record_id: id, decision: "not_done", who: this.agent, why };
    try {
      await this.append(`${recordId}-not-done`, payload, { facts: { epoch: this.writer.epoch } });
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      this.log(`${recordId}: own not_done: ${error.message}`); // a person decides
    }
  }
}

async function outcomeOf(effect) {
  try {
    return { result: (await effect()) ?? null };
  } catch (error) {
    return { error };
  }
}

const positionOf = ({ position: { partition, offset, index = 0 } }) => `${partition}:${offset}:${index}`;
