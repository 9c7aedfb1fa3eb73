// The caller of an operation, which may stop waiting. The operation itself completes: only its answer shows which records are in the
// log.

/** A caller with its `AbortSignal`. */
export class Caller {
  /** Whether the caller has stopped waiting. */
  left = false;
  #isAnswered = false;

  constructor(readonly signal: AbortSignal | undefined) {}

  /** Whether the caller has stopped waiting. A listener of the signal may ask before this caller's own listener has run. */
  get hasLeft(): boolean {
    return this.left || (!this.#isAnswered && (this.signal?.aborted ?? false));
  }

  /** Throws the signal's reason if the caller has stopped waiting. */
  check(): void {
    if (this.signal?.aborted) {
      this.left = true;
      throw this.signal.reason;
    }
  }

  /** Marks that the operation has its answer. Returns whether the caller still waits for it. */
  answered(): boolean {
    this.left ||= this.signal?.aborted ?? false;
    this.#isAnswered = !this.left;
    return this.#isAnswered;
  }

  /** The operation's answer; the signal's reason as soon as the caller stops waiting. */
  wait<T>(operation: Promise<T>): Promise<T> {
    const { signal } = this;
    if (!signal) return operation;
    return new Promise<T>((resolve, reject) => {
      const leave = () => {
        if (this.#isAnswered) return;
        this.left = true;
        reject(signal.reason);
      };
      signal.addEventListener("abort", leave, { once: true });
      void operation.then(resolve, reject).finally(() => signal.removeEventListener("abort", leave));
      if (signal.aborted) leave();
    });
  }
}
