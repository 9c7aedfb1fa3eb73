// How a server is reached, and the limits on time and memory.

import { TIMER_MAX } from "./clock.js";
import { checkText, Usage } from "./errors.js";
import type { Redaction } from "./redact.js";

export interface Settings {
  /** The `agent_id` of every record. */
  agent?: string;
  /** Names the claiming process for people. */
  claimedBy?: string;
  /** A bearer token, or a function that returns it, which is called again when the server refuses the token. Default: the
   * environment's `RUNLOG_TOKEN`. */
  token?: string | (() => string | undefined | Promise<string | undefined>);
  /** Milliseconds until an append or a query fails, with all its retries. */
  deadlineMs?: number;
  /** Milliseconds until an operation fails if no server has answered yet. After the first answer `deadlineMs` applies alone. */
  connectDeadlineMs?: number;
  /** Milliseconds that the gate waits for its intent to be read back as applied. After that the effect does not run. */
  readBackMs?: number;
  /** Calls of one handle in flight or with a held result. A further call waits. */
  callsMax?: number;
  /** The content to remove from records before they are sent. */
  redaction?: Redaction;
  /** Returns the W3C `traceparent` for records. A malformed value is not sent. */
  traceparent?: () => string | undefined;
  /** Sends requests, for example with a certificate. Default: the platform's `fetch`. */
  fetch?: typeof globalThis.fetch;
  /** Receives warnings. Default: `console.warn`. */
  warn?: (text: string) => void;
}

const SERVERS_MAX = 16;
const TOKEN = /^[\x21-\x7e]+$/;
const TRACEPARENT = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

interface Process {
  pid?: number;
  env?: Record<string, string | undefined>;
}
const platform = (globalThis as { process?: Process }).process ?? {};

/** The settings of a connection. */
export class Config {
  /** The URLs of the servers, in the order in which they are tried. */
  readonly servers: readonly string[];
  readonly agent: string;
  readonly claimedBy: string;
  readonly deadlineMs: number;
  readonly connectDeadlineMs: number;
  readonly readBackMs: number;
  readonly callsMax: number;
  readonly redaction: Redaction | undefined;
  readonly fetch: typeof globalThis.fetch;
  readonly warn: (text: string) => void;
  readonly #token: Settings["token"];
  readonly #traceparent: () => string | undefined;

  constructor(url: string | readonly string[], settings: Settings) {
    const urls = typeof url === "string" ? url.split(",") : url;
    this.servers = [...new Set(urls.map((each) => serverUrl(each.trim())))];
    if (this.servers.length < 1 || this.servers.length > SERVERS_MAX) {
      throw new Usage(`name 1 to ${SERVERS_MAX} servers, not ${this.servers.length}`);
    }
    this.agent = settings.agent ?? "agent";
    checkText("the agent's name", this.agent);
    const host = platform.env?.["HOSTNAME"];
    this.claimedBy = settings.claimedBy ?? `${host ? `${host}, ` : ""}process ${platform.pid ?? "of unknown id"}`;
    this.deadlineMs = millis("deadlineMs", settings.deadlineMs ?? 30_000);
    this.connectDeadlineMs = millis("connectDeadlineMs", settings.connectDeadlineMs ?? 3_000);
    this.readBackMs = millis("readBackMs", settings.readBackMs ?? 10_000);
    this.callsMax = positive("callsMax", settings.callsMax ?? 256);
    this.redaction = settings.redaction;
    this.fetch = settings.fetch ?? ((...request) => globalThis.fetch(...request));
    this.warn = total(settings.warn ?? ((text) => console.warn(`runlog: ${text}`)));
    this.#token = settings.token ?? platform.env?.["RUNLOG_TOKEN"];
    if (settings.traceparent !== undefined && typeof settings.traceparent !== "function") {
      throw new Usage("traceparent is a function that returns the text of the header, or undefined");
    }
    this.#traceparent = settings.traceparent ?? (() => undefined);
    const inClear = this.servers.find((each) => each.startsWith("http:") && !isLoopback(new URL(each).hostname));
    if (this.#token && inClear) throw new Usage(`a token is sent over https or to this machine only, not to ${inClear}`);
  }

  /** Reads the token. */
  async readToken(): Promise<string | undefined> {
    const found = typeof this.#token === "function" ? await this.#token() : this.#token;
    if (found && !TOKEN.test(found)) {
      throw new Usage("the token has characters that no token has: it is one line of visible ASCII characters");
    }
    return found || undefined;
  }

  /** The current `traceparent`, if it is well formed. */
  trace(): string | undefined {
    const found = this.#traceparent();
    return found && TRACEPARENT.test(found) ? found : undefined;
  }
}

function positive(name: string, value: number): number {
  if (!(value > 0)) throw new Usage(`${name} is a number above 0, not ${value}`);
  return value;
}

function millis(name: string, value: number): number {
  if (value > TIMER_MAX) throw new Usage(`${name} is at most ${TIMER_MAX} milliseconds, not ${value}`);
  return positive(name, value);
}

/** A function for warnings that does not stop an operation. */
const total = (warn: (text: string) => void) => (text: string): void => {
  try {
    warn(text);
  } catch {
    // The operation goes on without the warning.
  }
};

/** Checks the URL of a server. */
function serverUrl(url: string): string {
  const text = JSON.stringify(url);
  if (/^(local|kafka):/.test(url)) {
    throw new Usage(`${text} is a journal without a server: this client speaks HTTP only, so start \`runlog serve\`, and pass http://HOST:PORT`);
  }
  const parts = URL.canParse(url) ? new URL(url) : undefined;
  if (parts?.username || parts?.password) throw new Usage("credentials do not belong into a server's URL: pass `token`");
  if (!parts || !/^https?:$/.test(parts.protocol) || parts.search || parts.hash) {
    throw new Usage(`${text} is not the URL of a server: http://HOST:PORT or https://HOST:PORT`);
  }
  return url.replace(/\/+$/, "");
}

const isLoopback = (host: string) =>
  host === "localhost" || host.endsWith(".localhost") || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
