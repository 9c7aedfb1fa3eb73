// The server's operations, request by request, with their retries (docs/protocol.md).
//
// A query is sent again after any transient failure. An append is sent again with the same bytes, so that its records are in the
// log once, even if the first try already appended them.

import type {
  CallAnswer, Checkpoint, Head, Journal, LookupAnswer, Outcome, Position, ReadBack, RecordLine, RecordsPage, RecoveryAnswer,
} from "./answers.js";
import { SentAt, sleep } from "./clock.js";
import type { Config } from "./config.js";
import { checkText, Internal, NotFound, ofProblem, Overloaded, RunlogError, TooLarge, Unavailable, Usage } from "./errors.js";
import { Http, NoResponse, type Request, type Response } from "./http.js";
import { elementTexts, encode, isObject, memberText, parse, type Json, type JsonObject } from "./json.js";
import { recordOf, type Record } from "./records.js";
import { Servers, Tries } from "./servers.js";
import { utf8 } from "./sha256.js";

export const RECOVERY_PAGE = 1000;
const REQUESTS_PAGE = 100;
/** The path of a run, which begins the paths of its resources. */
const RUN = /^\/v1\/runs\/[^/?]+/;
/** The hash of a run without records. */
export const NO_RECORDS = "0".repeat(64);
const RETRY_AFTER_MAX = 86_400;
/** The lists of a recovery after `pending`, in the order of its pages. */
const AFTER_PENDING = ["completed", "approvals", "wakes", "messages", "write_backs"] as const;

/** An outcome with `sentAt`, the time of the first try, and after a read-back in the same request `askedAt`, the time of the last. */
export type TimedOutcome = Outcome & { sentAt: SentAt; askedAt?: SentAt };
/** A recovery; its checkpoint has the texts of its messages, which parsed values may not reproduce. */
export type WholeRecovery = RecoveryAnswer & { checkpoint?: (Checkpoint & { message_texts: string[] }) | null };

const escapeTerm = (text: string) => encodeURIComponent(text).replace(/[!'()*]/g, (found) => `%${found.charCodeAt(0).toString(16).toUpperCase()}`);

/** A path segment. Throws `Usage` for a text that no path can contain. */
export function segment(text: string): string {
  checkText("an id", text);
  return escapeTerm(text);
}

/** The path of a run. Throws `Usage` for ids that no path can contain. */
export function runPath(runId: string): string {
  checkText("a run id", runId);
  const bytes = utf8(runId).length;
  if (runId === "." || runId === ".." || bytes < 1 || bytes > 1024) {
    throw new Usage(`a run id has 1 to 1024 bytes and is not . or ..: ${JSON.stringify(runId)}`);
  }
  return `/v1/runs/${segment(runId)}`;
}

/** The query part of a path. Omits terms without a value. */
export function query(terms: { [name: string]: string | number | bigint | boolean | null | undefined }): string {
  const pairs = Object.entries(terms).filter(([, value]) => value !== undefined && value !== null);
  return `?${pairs.map(([name, value]) => `${name}=${escapeTerm(String(value))}`).join("&")}`;
}

/** Throws `Unavailable` for a page that lacks partitions: it must not look complete. */
export function checkComplete(page: { unavailable_partitions?: unknown[] }, items: string): void {
  if (page.unavailable_partitions?.length) {
    throw new Unavailable(`partitions ${page.unavailable_partitions.join(", ")} cannot be read now, and may have more ${items}`);
  }
}

/** Parses an answer. Throws the server's error, or an error for an answer that does not come from the server. */
function read(response: Response, server: string): Json {
  const { status } = response;
  let body: Json | undefined;
  try {
    body = parse(response.text);
  } catch {
    body = undefined;
  }
  if (status >= 200 && status < 300 && body !== undefined && body !== null) return body;
  if (status >= 400 && isObject(body) && "kind" in body) throw ofProblem(body);
  const message = `answer ${status} from ${server} is not one of Runlog`;
  // A proxy did not pass the request on.
  if (status === 413) throw new TooLarge(message);
  const isLater = status >= 500 || status === 408 || status === 425 || status === 429;
  if (isLater || (status >= 200 && status < 300)) throw new Unavailable(message);
  throw new Internal(`${message}; check the server's URL`, { action: "fix_the_input" });
}

/** A server and its answer about its journal, which was compared with the other servers' answers. */
interface Identified {
  readonly server: string;
  readonly journal: Journal;
}

export class Api {
  readonly servers: Servers;
  readonly #http: Http;

  constructor(readonly config: Config) {
    this.servers = new Servers(config);
    this.#http = new Http(config);
  }

  /** The current server's features, requested once. */
  async features(): Promise<ReadonlySet<string>> {
    const journal = this.servers.journalOf(this.servers.current) ?? (await this.#tried("/v1/journal", async ({ journal }) => journal));
    return new Set(journal.features);
  }

  /** A server with its answer about its journal, in one try. */
  async #identified(server: string, ms: number): Promise<Identified> {
    const known = this.servers.journalOf(server);
    if (known) return { server, journal: known };
    try {
      const journal = (await this.#answer(this.servers.request("GET", server, "/v1/journal", ms))) as unknown as Journal;
      this.servers.identify(server, journal);
      return { server, journal };
    } catch (error) {
      if (error instanceof RunlogError) error.happened = "nothing";
      throw error;
    }
  }

  /** Tries until there is an answer, a final error, or the deadline. `once` gets the server whose journal was compared, and the
   * milliseconds of a try. Other operations may have made another server the current one since. */
  async #tried<T>(path: string, once: (at: Identified, ms: number) => Promise<T>, ms = this.config.deadlineMs): Promise<T> {
    const tries = new Tries(this.servers, ms, RUN.exec(path)?.[0]);
    for (;;) {
      const left = tries.begin();
      let pause: number;
      try {
        return await once(await this.#identified(tries.server, left), left);
      } catch (error) {
        if (!(error instanceof RunlogError)) throw error;
        pause = tries.failed(error);
      }
      await sleep(pause);
    }
  }

  async #answer(request: Request): Promise<Json> {
    return (await this.#answerText(request))[0];
  }

  async #answerText(request: Request): Promise<[Json, string]> {
    let response: Response;
    try {
      response = await this.#http.send(request);
    } catch (error) {
      throw error instanceof NoResponse ? this.servers.noAnswer(request.server, error) : error;
    }
    try {
      const answer = read(response, request.server);
      this.servers.answered = true;
      return [answer, response.text];
    } catch (error) {
      if (error instanceof RunlogError && "kind" in error.problem) this.servers.answered = true;
      if (error instanceof Overloaded && /^[0-9]+$/.test(response.retryAfter ?? "")) {
        error.retryAfter = Math.min(Number(response.retryAfter), RETRY_AFTER_MAX);
      }
      throw error;
    }
  }

  /** Runs a query. Its errors say that nothing happened. */
  async #query<T>(path: string, once: (at: Identified, ms: number) => Promise<T>, ms?: number): Promise<T> {
    try {
      return await this.#tried(path, once, ms);
    } catch (error) {
      if (error instanceof RunlogError) error.happened = "nothing";
      throw error;
    }
  }

  /** Sends a query, and repeats it until the deadline. */
  async get<T>(path: string): Promise<T> {
    return (await this.getText<T>(path))[0];
  }

  /** As `get`, with the text of the answer. */
  getText<T>(path: string): Promise<[T, string]> {
    const once = ({ server }: Identified, left: number) => this.#answerText(this.servers.request("GET", server, path, left));
    return this.#query(path, once) as Promise<[T, string]>;
  }

  /** As `get`, with `undefined` for `not_found`. */
  find<T>(path: string): Promise<T | undefined> {
    return found(this.get<T>(path));
  }

  /** Sends a query about a position, and repeats it until the deadline. `path` gets `@LOG` if the position names its log and the
   * server knows logs; the server then refuses the position of another log. An address may lead to several servers, and an older
   * one gets the query without the log. */
  #getAt<T>(position: Position, path: (log: string) => string, ms: number): Promise<T> {
    return this.#query(path(""), async ({ server, journal }, left) => {
      if (position.log && journal.features?.includes("logs")) {
        try {
          return (await this.#answer(this.servers.request("GET", server, path(`@${position.log}`), left))) as T;
        } catch (error) {
          if (!(error instanceof Usage)) throw error;
        }
      }
      return (await this.#answer(this.servers.request("GET", server, path(""), left))) as T;
    }, ms);
  }

  /** Posts JSON that may arrive twice. Repeats the same bytes until the deadline. */
  post<T>(path: string, content: JsonObject): Promise<T> {
    const body = encode(content);
    const once = ({ server }: Identified, left: number) => this.#answer(this.servers.request("POST", server, path, left, body));
    return this.#tried(path, once) as Promise<T>;
  }

  /** Appends records, in order, and returns their outcomes.
   *
   * With `readBack`, if the server supports it, the outcomes have the run's writer as of `latest`. If the error's `happened` is
   * `unknown`, some records may be in the log: send the same records again to find out. */
  append(runId: string, records: readonly Record[], readBack = false): Promise<TimedOutcome[]> {
    const isOne = records.length === 1;
    const body = encode(isOne ? records[0]! : records);
    const path = `${runPath(runId)}/records`;
    const sentAt = new SentAt();
    return this.#tried(path, async ({ server, journal }, left) => {
      // The next try may ask another server, which may be older.
      const hasReadBack = readBack && journal.features?.includes("read_back");
      const times = hasReadBack ? { sentAt, askedAt: new SentAt() } : { sentAt };
      const request = this.servers.request("POST", server, hasReadBack ? `${path}?consistency=latest` : path, left, body);
      const answer = (await this.#answer(request)) as unknown as Outcome | Outcome[];
      const outcomes = isOne ? [answer as Outcome] : (answer as Outcome[]);
      if (!Array.isArray(outcomes) || outcomes.length !== records.length || outcomes.some((outcome) => !outcome?.outcome)) {
        throw new Unavailable(`the answer from ${request.server} does not have an outcome for each record`);
      }
      return outcomes.map((outcome) => ({ ...outcome, ...times }));
    });
  }

  /** Claims a run, with `only_if` only if it still has that hash. The server finds a claim that is sent again by its `record_id`. */
  claim(runId: string, claim: JsonObject): Promise<unknown> {
    return this.post(`${runPath(runId)}/claims`, claim);
  }

  /** The run's head at `latest`. */
  run(runId: string): Promise<Head | undefined> {
    return this.find(`${runPath(runId)}?consistency=latest`);
  }

  /** Reads back an acknowledged record: its outcome, and who writes the run now. */
  outcome(runId: string, recordId: string, position: Position, ms: number): Promise<ReadBack> {
    const place = `${position.partition}:${position.offset}:${position.index ?? 0}`;
    const path = (log: string) => `${runPath(runId)}/outcome${query({ position: place + log, record_id: recordId, consistency: "latest" })}`;
    return this.#getAt(position, path, ms);
  }

  /** The outcome of a record by its id; `undefined` if it is not in the log. */
  landed(runId: string, recordId: string): Promise<ReadBack | undefined> {
    return this.find(`${runPath(runId)}/outcome${query({ record_id: recordId, consistency: "latest" })}`);
  }

  /** A recorded call by its request. */
  call(runId: string, recordId: string): Promise<CallAnswer> {
    return this.get(`${runPath(runId)}/calls/${segment(recordId)}?consistency=latest`);
  }

  /** The first call of a tool with an idempotency key, at least as of a position; `undefined` if the run has none. The server has the
   * feature `call_keys`. Not at `latest`: a server that reads from a deposed leader may not know the call. */
  callWithKey(runId: string, tool: string, key: string, atLeast: Position): Promise<LookupAnswer | undefined> {
    return this.#findAt(atLeast, `${runPath(runId)}/lookup${query({ tool, key })}`);
  }

  /** As `find`, at least as of a position. */
  #findAt<T>(atLeast: Position | undefined, path: string): Promise<T | undefined> {
    if (!atLeast) return this.find(path);
    const consistency = escapeTerm(`at-least=${atLeast.partition}:${atLeast.offset}`);
    return found(this.#getAt<T>(atLeast, (log) => `${path}&consistency=${consistency}${escapeTerm(log)}`, this.config.deadlineMs));
  }

  /** A recovery, its pages merged. */
  async recovery(runId: string, fromStart: boolean, content: boolean): Promise<WholeRecovery | undefined> {
    const path = `${runPath(runId)}/recovery${query({ full: true, from_start: fromStart, content, limit: RECOVERY_PAGE })}`;
    const first = await found(this.getText<RecoveryAnswer>(path));
    if (!first) return undefined;
    const [whole, text] = first;
    let cursor = whole.next_cursor;
    while (cursor) {
      const page = await this.find<RecoveryAnswer>(`${path}&cursor=${escapeTerm(cursor)}`);
      if (!page) throw missingPage(runId);
      for (const part of ["pending", ...AFTER_PENDING, "missing_content"] as const) (whole[part] as unknown[]).push(...page[part]);
      cursor = page.next_cursor;
    }
    return withTexts(whole, text);
  }

  /** The first page of a recovery, with at most one call: the run's head and its latest valid checkpoint, with `full` also its messages
   * and their texts. */
  async resumePoint(runId: string, full: boolean): Promise<WholeRecovery | undefined> {
    const path = `${runPath(runId)}/recovery${query({ full, content: false, limit: 1, consistency: "latest" })}`;
    const read = await found(this.getText<RecoveryAnswer>(path));
    return read && withTexts(...read);
  }

  /** The valid checkpoint with an id, with its messages. */
  checkpointById(runId: string, checkpointId: string): Promise<Checkpoint | undefined> {
    return this.find(`${runPath(runId)}/checkpoints/${segment(checkpointId)}?consistency=latest`);
  }

  /** A page of the records with a correlation entry, each whole. */
  async recordsPage(
    runId: string, [key, value]: readonly [string, string], cursor: string | undefined, limit = 1000, order?: "desc",
  ): Promise<RecordsPage> {
    const terms = query({ whole: true, limit, correlation: `${key}=${value}`, bytes: "base64", consistency: "latest", order, cursor });
    return (await this.find<RecordsPage>(`${runPath(runId)}/records${terms}`)) ?? { records: [] };
  }

  /** The newest records of a run, newest first. */
  async newestRecords(runId: string, limit: number): Promise<RecordLine[]> {
    const terms = query({ order: "desc", limit, consistency: "latest" });
    return (await this.find<RecordsPage>(`${runPath(runId)}/records${terms}`))?.records ?? [];
  }

  /** A recovery without a checkpoint, with all pending effects: at `latest`, or at least as of a position. They come first, so few pages
   * are read, however many calls the run has. */
  async pending(runId: string, atLeast?: Position): Promise<RecoveryAnswer | undefined> {
    const path = `${runPath(runId)}/recovery${query({ from_start: true, content: false, limit: 1 })}`;
    const whole = await this.#findAt<RecoveryAnswer>(atLeast, path);
    let page = whole;
    while (whole && page?.next_cursor && AFTER_PENDING.every((part) => page![part].length === 0)) {
      page = await this.#findAt<RecoveryAnswer>(atLeast, `${path}&cursor=${escapeTerm(page.next_cursor)}`);
      // A call that is missing here would count as decided.
      if (!page) throw missingPage(runId);
      whole.pending.push(...page.pending);
    }
    return whole;
  }

  /** The calls with the fact `repeatable`. Reads the run's newest requests until it has seen all `calls`. */
  async repeatableCalls(runId: string, calls: readonly string[]): Promise<Set<string>> {
    const left = new Set(calls);
    const repeatable = new Set<string>();
    // A server without the order records no facts of a request.
    if (!(await this.features()).has("order")) return repeatable;
    const terms = { family: "tool_call", kind: "requested", whole: true, order: "desc", limit: REQUESTS_PAGE, consistency: "latest" };
    let cursor: string | null | undefined;
    while (left.size) {
      const page = await this.find<RecordsPage>(`${runPath(runId)}/records${query({ ...terms, cursor })}`);
      for (const line of page?.records ?? []) {
        const record = recordOf(line.record);
        const id = String(record["record_id"]);
        if (left.delete(id) && recordOf(record["facts"])["repeatable"] === true) repeatable.add(id);
      }
      cursor = page?.next_cursor;
      if (!cursor) break;
    }
    return repeatable;
  }

  /** Why a run ended as `status`; `undefined` if no lifecycle record says so. */
  async endReason(runId: string, status: string): Promise<string | undefined> {
    const terms = query({ family: "run", kind: status, whole: true, consistency: "latest" });
    const page = await this.find<RecordsPage>(`${runPath(runId)}/records${terms}`);
    const line = page?.records.find((each) => each.payload_type === "run_lifecycle" && each.record);
    return line && String(recordOf(recordOf(line.record)["payload"])["reason"]);
  }
}

/** A recovery with the texts of its checkpoint's messages, from the text of its first page. */
function withTexts(whole: RecoveryAnswer, text: string): WholeRecovery {
  if (!whole.checkpoint) return { ...whole, checkpoint: null };
  const messages = memberText(memberText(text, "checkpoint") ?? "{}", "messages");
  return { ...whole, checkpoint: { ...whole.checkpoint, message_texts: messages ? elementTexts(messages) : [] } };
}

const missingPage = (runId: string) => new Internal(`run ${runId}: a page of its recovery was not found`);

async function found<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}
