// The operators' part of a connection: lists runs, finds effects that wait for a decision, and decides.
//
//   undecided ─▶ Effect: as it was read, with its `revision` and `basis` ─▶ decide
//                                                  the effect changed since ─▶ Conflict; read it again

import type { Evidence, LookupAnswer, Pending, RecordsPage } from "./answers.js";
import { checkComplete, query, runPath, segment, type Api } from "./api.js";
import { checkText, Conflict, ResultNotRecorded, Usage } from "./errors.js";
import { argsSha256, encode, fingerprint, isObject, type Json } from "./json.js";
import { readMarker } from "./marker.js";
import { recordOf } from "./records.js";
import { argumentsJson, toJson } from "./values.js";

const PAGE = 100;
const STORED = "stored_payload";
/** Ends of evidence that say that the effect happened. */
const HAPPENED = ["completed", "deduped", "result_rewritten"];

export type Decision = "done" | "adopt" | "not_done" | "give_up";

export interface Deciding {
  who: string;
  why: string;
  /** The effect's result; `done` needs it, and it may be null. */
  result?: unknown;
  /** The record id of evidence that says that the effect happened, which a `not_done` contradicts: `effect.against`. */
  against?: string;
  /** Decide although the effect's process may still record the result. */
  force?: boolean;
}

export interface RunsQuery {
  prefix?: string;
  /** `open`, or how the run ended. */
  status?: string;
  /** Runs with an effect that must be decided. */
  stuck?: boolean;
  /** Open runs of a lost home, until an operator accepts them. */
  inDoubt?: boolean;
  /** Lists by the time of the last record. */
  newest?: boolean;
  /** RFC 3339: only runs with a record since then. */
  since?: string;
}

export interface RunLine {
  run_id: string;
  status: string;
  epoch: number;
  updated_at?: string | null;
}

/** An effect that may have happened, as it was read. A decision about it is refused if it has changed since. */
export interface Effect extends Pending {
  readonly run_id: string;
  /** Absent for an effect of another SDK. */
  readonly arguments?: Json;
  /** The record id of the evidence that says that the effect happened, and that `adopt` takes. */
  readonly against: string | undefined;
}

interface Page<T> {
  items: T[];
  cursor: string | null | undefined;
}

/** A page of the list of runs. */
export async function runsPage(api: Api, cursor: string | undefined, { inDoubt, ...terms }: RunsQuery): Promise<Page<RunLine>> {
  const path = `/v1/runs${query({ ...terms, in_doubt: inDoubt, limit: PAGE, cursor, consistency: "latest" })}`;
  const page = await api.get<{ runs: RunLine[]; next_cursor?: string | null; unavailable_partitions?: unknown[] }>(path);
  checkComplete(page, "runs");
  return { items: page.runs, cursor: page.next_cursor };
}

type Found = Pending & { run_id: string; arguments?: Json };

/** A page of the effects that must be decided, with their contents. */
export async function undecidedPage(api: Api, cursor: string | undefined, runId: string | undefined): Promise<Page<Effect>> {
  let page: Page<Found>;
  if (runId !== undefined) {
    const recovery = await api.recovery(runId, false, true);
    const pending = recovery?.pending.filter((found) => found.class !== "retry_safe") ?? [];
    page = { items: pending.map((found) => ({ ...found, run_id: runId })), cursor: undefined };
  } else {
    const path = `/v1/effects${query({ unsafe: true, limit: PAGE, cursor, consistency: "latest" })}`;
    const read = await api.get<{ effects: Found[]; next_cursor?: string | null; unavailable_partitions?: unknown[] }>(path);
    checkComplete(read, "effects");
    page = { items: read.effects, cursor: read.next_cursor };
  }
  const items: Effect[] = [];
  for (const found of page.items) items.push(await withContents(api, found));
  return { items, cursor: page.cursor };
}

/** Reads arguments and evidence from the content store, if they are there. */
async function withContents(api: Api, listed: Found): Promise<Effect> {
  let found = listed;
  if (found.evidence.some((piece) => isStored(piece.payload))) {
    const recovery = await api.recovery(found.run_id, false, true);
    // Takes all members from one answer: a decision names the revision and the basis of the evidence that was shown.
    found = { ...found, ...recovery?.pending.find((pending) => pending.id === listed.id) };
  }
  const mustRead = found.kind === "tool_call" && (found.arguments === undefined || isStored(found.arguments));
  const args = mustRead ? (await api.call(found.run_id, found.id)).arguments : found.arguments;
  return { ...found, arguments: args, against: against(found.evidence) };
}

const isStored = (payload: Json | undefined) => isObject(payload) && payload["type"] === STORED;
const against = (evidence: readonly Evidence[]) => {
  const happened = evidence.filter((piece) => HAPPENED.includes(piece.status));
  return (happened.find((piece) => piece.adoptable) ?? happened.at(-1))?.record_id;
};

/** Records a decision about an effect in the state in which it was read. */
export async function decide(api: Api, effect: Effect, decision: Decision, deciding: Deciding): Promise<void> {
  const body = bodyOf(effect, decision, deciding);
  try {
    await api.post(`${runPath(effect.run_id)}/effects/${segment(effect.id)}/resolution`, deciding.force ? { ...body, force: true } : body);
  } catch (error) {
    // The first copy of the decision was applied, and its answer was lost: the second copy is a conflict.
    if (!(error instanceof Conflict) || !(await isRecorded(api, effect, body))) throw error;
  }
}

/** Checks a decision, and makes its body. */
function bodyOf(effect: Effect, decision: Decision, { who, why, result, against }: Deciding): { [name: string]: Json } {
  const { revision, basis } = effect;
  const what = `effect ${effect.id} of run ${effect.run_id}`;
  if (!["done", "adopt", "not_done", "give_up"].includes(decision)) throw new Usage(`a decision is one of done, adopt, not_done, give_up, not ${decision}`);
  if ((decision === "done") === (result === undefined)) throw new Usage("`done` needs the effect's `result`, which may be null; other decisions have none");
  if (!revision || !basis) throw new Usage(`${what} has no revision and basis: its server is too old to decide from here`);
  const body: { [name: string]: Json } = { decision, who, why, revision, basis };
  if (decision === "done") body["result"] = toJson(result);
  if (decision === "adopt") {
    const adoptable = effect.evidence.filter((piece) => piece.adoptable).at(-1);
    if (!adoptable) throw new Usage(`${what} has no evidence to adopt`);
    body["evidence"] = adoptable.record_id;
  }
  if (decision !== "not_done") {
    if (against !== undefined) throw new Usage("only `not_done` is decided `against` evidence");
    return body;
  }
  if (against !== effect.against) {
    const message = effect.against === undefined
      ? `${what}: no evidence says that it happened; decide without \`against\`. Nothing was recorded`
      : `${what}: record ${effect.against} is evidence that it happened: decide \`adopt\`, or \`not_done\` with against: ` +
        `${JSON.stringify(effect.against)} if the effect did not happen. Nothing was recorded`;
    throw new Conflict(message, { runId: effect.run_id, recordId: effect.id });
  }
  if (against !== undefined) body["evidence"] = against;
  return body;
}

/** Whether the same decision, at this revision of the effect, was applied. */
async function isRecorded(api: Api, effect: Effect, body: { [name: string]: Json }): Promise<boolean> {
  const order = (await api.features()).has("order") ? "desc" : undefined;
  const terms = { family: "effect_resolution", kind: String(body["decision"]), whole: true, order, limit: PAGE, consistency: "latest" };
  const page = await api.find<RecordsPage>(`${runPath(effect.run_id)}/records${query(terms)}`);
  return (page?.records ?? []).some((line) => {
    const record = recordOf(line.record);
    const [payload, facts] = [recordOf(record["payload"]), recordOf(record["facts"])];
    const isSame = ["decision", "who", "why", "result"].every((name) => encode(payload[name] ?? null) === encode(body[name] ?? null));
    const isOfEffect = payload["request_record_id"] === effect.id && facts["revision"] === body["revision"];
    return isSame && isOfEffect && namesEvidence(effect, body, facts["evidence"]);
  });
}

/** Whether a recorded decision names the evidence of `body`. At schema version 2 the server records another piece that the author of a `not_done` saw. */
function namesEvidence(effect: Effect, body: { [name: string]: Json }, recorded: Json | undefined): boolean {
  const named = body["evidence"];
  if (body["decision"] !== "not_done" || named === undefined) return (recorded ?? null) === (named ?? null);
  return effect.evidence.some((piece) => piece.record_id === recorded && HAPPENED.includes(piece.status));
}

/** Looks a call up. Throws `ResultNotRecorded` for a result that is not in the journal. */
export async function lookup(api: Api, runId: string, tool: string, args: unknown, occurrence?: number): Promise<LookupAnswer> {
  checkText("the name of a tool", tool);
  const ofCall = fingerprint(tool, argsSha256(argumentsJson(args)));
  const found = await api.get<LookupAnswer>(`${runPath(runId)}/lookup${query({ tool, fingerprint: ofCall, occurrence, consistency: "latest" })}`);
  const mark = readMarker(undefined, found.result);
  if (!mark) return found;
  const ended = await api.find<LookupAnswer>(`${runPath(runId)}/calls/${segment(mark.call)}?consistency=latest`);
  // The marker of another call is a result.
  if (ended?.fingerprint !== found.fingerprint || ended.occurrence !== found.occurrence) return found;
  throw new ResultNotRecorded(`call ${mark.call} of ${tool} in run ${runId} is completed; its result was not recorded: ${mark.message}`, mark, runId);
}
