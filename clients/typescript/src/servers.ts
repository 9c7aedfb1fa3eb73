// The servers of a connection, and the tries of an operation on them.
//
//   try ─▶ the current server ─┬─ answered ─▶ it stays the current server
//                              ├─ no answer, overloaded, stale, a mirror ─▶ pause ─▶ try the next server, with the same bytes
//                              └─ the run's partition is elsewhere ─▶ try a named server that holds it, with the same bytes
//
// Every server that is asked must serve the same journal: another journal does not know the run, and would let its effects run
// again.

import type { Journal } from "./answers.js";
import type { Config } from "./config.js";
import {
  Forbidden, instancesOf, Internal, isMirror, isNotHere, Overloaded, Stale, Unauthenticated, Unavailable, type RunlogError,
} from "./errors.js";
import type { NoResponse, Request } from "./http.js";

const PAUSE_MIN = 50;
const PAUSE_MAX = 1000;
/** The client waits this much longer than the deadline that it sends to the server. */
const SLACK_MS = 5000;
/** Runs whose server is kept. */
const PLACED_MAX = 4096;
const NOTHING_APPENDED = new Set(["usage", "invalid", "too_large", "missing_content", "overloaded", "reconcile_required"]);

/** The servers of a connection. Each operation asks the server first that answered last. */
export class Servers {
  /** Whether a server has ever answered. */
  answered = false;
  #current = 0;
  readonly #journals = new Map<string, Journal>();
  /** The servers of runs that the current server does not hold, by the path of the run. */
  readonly #placed = new Map<string, string>();

  constructor(readonly config: Config) {}

  /** The URL of the server to ask about a run. */
  serverOf(run: string | undefined): string {
    return (run !== undefined && this.#placed.get(run)) || this.current;
  }

  /** Makes a server the first one to ask about a run. */
  place(run: string, server: string): void {
    this.#placed.delete(run);
    this.#placed.set(run, server);
    const [oldest] = this.#placed.keys();
    if (this.#placed.size > PLACED_MAX) this.#placed.delete(oldest!);
  }

  /** The URL of the server to ask. */
  get current(): string {
    return this.config.servers[this.#current]!;
  }

  /** A server's answer about its journal, if it was read. */
  journalOf(server: string): Journal | undefined {
    return this.#journals.get(server);
  }

  /** Keeps a server's answer about its journal. Throws `Internal` if another server has another journal. */
  identify(server: string, journal: Journal): void {
    for (const [url, known] of this.#journals) {
      if (known.journal_id !== journal.journal_id) {
        const message = `${server} serves journal ${journal.journal_id}, and ${url} serves ${known.journal_id}: name servers of one journal`;
        throw new Internal(message, { action: "fix_the_input" });
      }
    }
    this.#journals.set(server, journal);
  }

  /** Makes the next server the current server, unless another operation has already left `server`. A run that is placed on `server`
   * asks the current server again. */
  leave(server: string, run: string | undefined): void {
    if (run !== undefined && this.#placed.get(run) === server) this.#placed.delete(run);
    if (server === this.current) this.#current = (this.#current + 1) % this.config.servers.length;
  }

  /** A request with `deadline_ms`. */
  request(method: "GET" | "POST", server: string, path: string, ms: number, body?: string): Request {
    const withDeadline = `${path}${path.includes("?") ? "&" : "?"}deadline_ms=${Math.floor(ms)}`;
    const timeoutMs = Math.ceil(this.answered ? ms + SLACK_MS : ms);
    return { method, server, path: withDeadline, body, timeoutMs };
  }

  /** Makes the error for a request without an answer. */
  noAnswer(server: string, error: NoResponse): Unavailable {
    const hint = this.answered ? "" : "; is `runlog serve` running there?";
    const why = error.remedy === undefined ? error.why + hint : `${error.remedy} (${error.why})`;
    const found = new Unavailable(`no answer from ${server}: ${why}`, { happened: error.sent ? "unknown" : "nothing" });
    if (error.remedy !== undefined && !this.answered) found.action = "fix_the_input";
    found.wasNotSent = !error.sent;
    return found;
  }
}

/** The tries of one operation, until its deadline. */
export class Tries {
  readonly #begun = performance.now();
  readonly #ends: number;
  /** The server of the current try. */
  server: string;
  #count = 0;
  #pause = PAUSE_MIN;
  #maybeSent = false;
  /** Servers in a row that refused the request because another one must answer it. */
  #refusals = 0;
  readonly #failed = new Set<string>();
  readonly #notHere = new Set<string>();

  /** `run` is the path of the run that the operation is about. */
  constructor(readonly servers: Servers, ms: number, readonly run: string | undefined) {
    this.#ends = this.#begun + ms;
    this.server = servers.serverOf(run);
  }

  /** Begins a try. Returns its time limit: a part of the remaining time, if there are other servers to try. */
  begin(): number {
    const { servers } = this;
    this.server = servers.serverOf(this.run);
    const left = this.#ends - performance.now();
    const limit = servers.answered ? left : Math.min(left, servers.config.connectDeadlineMs);
    return Math.max(100, limit / servers.config.servers.length);
  }

  /** Returns the pause before the next try. Throws the error if there is none, with all tries in its `happened`. */
  failed(error: RunlogError): number {
    const { servers } = this;
    this.#maybeSent ||= error.happened === "unknown" || mayBeInTheLog(error);
    this.#count++;
    const others = servers.config.servers.length - 1;
    const isTransient = error instanceof Unavailable || error instanceof Overloaded || error instanceof Stale;
    const isNew = isNotHere(error.problem) ? this.#placeElsewhere(error) : false;
    if (isTransient && !isNotHere(error.problem)) servers.leave(this.server, this.run);
    this.#failed.add(this.server);
    const isRound = this.#count > others;
    // A refusal does not end the tries while another server, which may accept the request, does not answer.
    this.#refusals = isMirror(error.problem) || isNotHere(error.problem) ? this.#refusals + 1 : 0;
    const isFinal = error.action !== "retry" && (this.#refusals === 0 || this.#refusals > others);
    if (error instanceof Overloaded && error.retryAfter !== undefined) this.#pause = Math.max(PAUSE_MIN, 1000 * error.retryAfter);
    else if (isRound) this.#pause = Math.min(this.#pause * 2, PAUSE_MAX);
    const isFirstContact = isRound && !servers.answered;
    const ends = isFirstContact ? Math.min(this.#ends, this.#begun + servers.config.connectDeadlineMs) : this.#ends;
    if (!isTransient || (isFinal && isRound) || performance.now() + this.#pause >= ends) {
      error.happened = this.#maybeSent ? "unknown" : "nothing";
      throw error;
    }
    if (isNew) return 0;
    if (this.#count === 1) {
      servers.config.warn(`${error.message}; trying again for ${Math.round((ends - performance.now()) / 1000)} s`);
    }
    return this.#pause;
  }

  /** Chooses the next server after a server that does not hold the run: first the named servers that hold it. Returns whether this
   * operation has not asked it yet. A server that the program did not name gets no request, because it would get the token. */
  #placeElsewhere(error: RunlogError): boolean {
    const { servers, run } = this;
    this.#notHere.add(this.server);
    const holders = new Set(instancesOf(error.problem).map(addressOf));
    const left = servers.config.servers.filter((each) => !this.#notHere.has(each));
    const named = left.filter((each) => holders.has(addressOf(each)));
    const isAsked = (each: string) => this.#failed.has(each);
    const next = [...named, ...left].find((each) => !isAsked(each)) ?? named[0] ?? left[0];
    if (run === undefined) servers.leave(this.server, run);
    else if (next !== undefined) servers.place(run, next);
    return run !== undefined && next !== undefined && !isAsked(next);
  }
}

const addressOf = (url: string): string => (URL.canParse(url) ? new URL(url).href.replace(/\/+$/, "") : url);

function mayBeInTheLog(error: RunlogError): boolean {
  if (error instanceof Unauthenticated || error instanceof Forbidden || isMirror(error.problem) || isNotHere(error.problem)) return false;
  return !NOTHING_APPENDED.has(error.kind) && !error.wasNotSent;
}
