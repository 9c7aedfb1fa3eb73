// Sends one request over HTTP, and converts each failure of the platform to `NoResponse`.

import type { Config } from "./config.js";

const ANSWER_BYTES_MAX = 256 * 2 ** 20;
/** Codes of errors before a connection exists. A connection that exists may report a host out of reach after its request was sent. */
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);
const UNREACHABLE = new Set(["EHOSTUNREACH", "ENETUNREACH"]);
const CAUSES_MAX = 8;

export interface Request {
  readonly method: "GET" | "POST";
  readonly server: string;
  readonly path: string;
  readonly body?: string;
  /** Milliseconds until the request is given up. */
  readonly timeoutMs: number;
}

export interface Response {
  readonly status: number;
  readonly retryAfter: string | null;
  readonly text: string;
}

/** There was no complete answer. */
export class NoResponse extends Error {
  /** `sent`: whether the server may have received the request. `remedy`: the cause and the remedy, if another try does not help. */
  constructor(readonly why: string, readonly sent: boolean, readonly remedy?: string) {
    super(why);
  }
}

export class Http {
  #token: string | undefined;
  #hasToken = false;

  constructor(readonly config: Config) {}

  /** Sends a request; once more with a new token if the token was refused. */
  async send(request: Request): Promise<Response> {
    if (!this.#hasToken) await this.#readToken();
    const sent = this.#token;
    const answer = await this.#send(request);
    if (answer.status !== 401) return answer;
    // If the token cannot be read again, the server's refusal counts. Another request may have read it meanwhile.
    if (this.#token === sent) await this.#readToken().catch(() => undefined);
    return this.#token === sent ? answer : this.#send(request);
  }

  async #readToken(): Promise<void> {
    this.#token = await this.config.readToken();
    this.#hasToken = true;
  }

  async #send({ method, server, path, body, timeoutMs }: Request): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json" };
    if (this.#token) headers["authorization"] = `Bearer ${this.#token}`;
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      const trace = this.config.trace();
      if (trace) headers["traceparent"] = trace;
    }
    try {
      const signal = AbortSignal.timeout(timeoutMs);
      const answer = await this.config.fetch(server + path, { method, headers, body, signal, redirect: "manual" });
      return { status: answer.status, retryAfter: answer.headers.get("retry-after"), text: await bodyOf(answer) };
    } catch (error) {
      throw error instanceof NoResponse ? error : noResponse(error);
    }
  }
}

/** The text of an answer. The server may be another program than the URL promises, so its length is bounded. */
async function bodyOf(answer: globalThis.Response): Promise<string> {
  const reader = answer.body?.getReader();
  if (!reader) return "";
  const decoder = new TextDecoder();
  const parts: string[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > ANSWER_BYTES_MAX) {
      await reader.cancel();
      throw new NoResponse(`the answer has more than ${ANSWER_BYTES_MAX} bytes, which no Runlog server sends`, true, "check the server's URL");
    }
    parts.push(decoder.decode(value, { stream: true }));
  }
  return parts.join("") + decoder.decode();
}

function noResponse(error: unknown): NoResponse {
  const causes: { code?: unknown; syscall?: unknown; message?: unknown }[] = [];
  for (let cause: unknown = error; cause instanceof Error && causes.length < CAUSES_MAX; cause = cause.cause) causes.push(cause as never);
  const codes = causes.map((cause) => cause.code).filter((code) => typeof code === "string");
  const why = [...new Set([...causes.map((cause) => String(cause.message)), ...codes])].filter(Boolean).join(": ") || String(error);
  const remedy = codes.map(remedyOf).find(Boolean);
  const wasNotSent = causes.some(({ code, syscall }) => NOT_SENT.has(code as string) || (UNREACHABLE.has(code as string) && syscall === "connect"));
  return new NoResponse(why, remedy === undefined && !wasNotSent, remedy);
}

/** Explains a permanent failure. `undefined` for a failure that a later try may not meet. */
function remedyOf(code: string): string | undefined {
  if (code === "ENOTFOUND") return "no machine has this name: check the server's URL";
  if (code === "CERT_HAS_EXPIRED") return "the server's certificate has expired: renew it, and check this machine's clock";
  if (code === "CERT_NOT_YET_VALID") return "the server's certificate is not valid yet: check this machine's clock";
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return "the server's certificate is for another name: use a name of the certificate in the URL";
  }
  if (/^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED_CERT_IN_CHAIN|DEPTH_ZERO_SELF_SIGNED_CERT|UNABLE_TO_GET_ISSUER_CERT(_LOCALLY)?)$/.test(code)) {
    return "the server's certificate is of an authority that is not trusted here: name its file in NODE_EXTRA_CA_CERTS, or pass a `fetch` that trusts it";
  }
  if (code === "ERR_SSL_WRONG_VERSION_NUMBER" || code === "ERR_SSL_PACKET_LENGTH_TOO_LONG") return "the server does not speak TLS: use http://";
  return undefined;
}
