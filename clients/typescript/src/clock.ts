/** The time at which a request was sent. */
export class SentAt {
  readonly #monotonic = performance.now();
  readonly #system = Date.now();

  /** Milliseconds since then: the greater value of two clocks. The system's clock also shows that the machine was suspended. */
  age(): number {
    return Math.max(performance.now() - this.#monotonic, Date.now() - this.#system);
  }
}

/** The maximum milliseconds of a timer, with space for additions. The platform makes a longer one end at once. */
export const TIMER_MAX = 2_000_000_000;

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a promise. Returns false if it is not settled after some milliseconds. */
export async function within(ms: number, promise: Promise<unknown>): Promise<boolean> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<boolean>((resolve) => { timer = setTimeout(resolve, ms, false); });
  try {
    return await Promise.race([promise.then(() => true), timeout]);
  } finally {
    clearTimeout(timer);
  }
}
