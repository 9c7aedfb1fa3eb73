// Waits in the order of arrival, each for a bounded time.

/** Permits of which each is held by one caller. With one permit it is a lock. */
export class Permits {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Waits for a permit. Returns false after the time limit. */
  async acquire(ms: number): Promise<boolean> {
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    return new Promise((resolve) => {
      const accept = () => {
        clearTimeout(timer);
        resolve(true);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(accept), 1);
        resolve(false);
      }, ms);
      this.#waiting.push(accept);
    });
  }

  release(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.#free++;
  }
}
