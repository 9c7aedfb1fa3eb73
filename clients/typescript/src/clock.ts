/** The time at which a request was sent. */
export class SentAt {
  readonly #monotonic = performance.now();
  readonly #system = Date.now();

  /** Milliseconds since then: the greater value of two clocks. The system's clock also shows that the machine was suspended. */
  age(): number {
    return Math.max(performance.now() - this.#monotonic, Date.now() - this.#system);
  }
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
