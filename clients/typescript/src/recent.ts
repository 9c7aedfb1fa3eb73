// Tracks calls that were answered since no call was in flight: a concurrent checkpoint may lack their answers.
//
//   call a    ├──────┤ answered
//   call b       ├───────────────┤
//   checkpoint          ├─┤          lists a as unanswered: its messages may precede the answer
//   checkpoint                     ├─┤  lists neither: no call is in flight

export class Recent {
  inFlight = 0;
  /** The number of steps in flight. */
  steps = 0;
  #answered = new Set<string>();
  readonly #checkpoints = new Set<Set<string>>();

  /** Counts a call in flight. */
  async call<T>(operation: () => Promise<T>): Promise<T> {
    this.inFlight++;
    try {
      return await operation();
    } finally {
      if (--this.inFlight === 0) this.#answered = new Set();
    }
  }

  /** Counts a step: it counts as a call in flight. */
  async step<T>(operation: () => Promise<T>): Promise<T> {
    this.steps++;
    try {
      return await this.call(operation);
    } finally {
      this.steps--;
    }
  }

  /** Begins a checkpoint. `operation` gets the ids of calls whose answers its messages may lack; the set grows as calls are
   * answered. */
  async checkpoint(operation: (lacking: ReadonlySet<string>) => Promise<void>): Promise<void> {
    const lacking = new Set(this.#answered);
    this.#checkpoints.add(lacking);
    try {
      await operation(lacking);
    } finally {
      this.#checkpoints.delete(lacking);
    }
  }

  /** Notes an answered call. */
  answered(callId: string): void {
    for (const calls of [this.#answered, ...this.#checkpoints]) calls.add(callId);
  }
}
