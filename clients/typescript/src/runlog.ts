// A connection to the servers of a journal.

import type { LookupAnswer } from "./answers.js";
import { Api } from "./api.js";
import { Config, type Settings } from "./config.js";
import {
  decide, lookup, runsPage, undecidedPage, type Deciding, type Decision, type Effect, type RunLine, type RunsQuery,
} from "./operators.js";
import { recoveryOf, Run, type Recovery } from "./run.js";
import { Session, type Opening } from "./session.js";

export class Runlog {
  readonly #api: Api;

  constructor(readonly config: Config) {
    this.#api = new Api(config);
  }

  /** Claims a run, new or not, and recovers it. */
  async open(runId: string, options: Opening = {}): Promise<Run> {
    const session = new Session(this.#api, runId, options);
    return new Run(session, await session.open());
  }

  /** Opens a run for a function, and leaves it afterwards: results that interrupted calls hold are recorded, if the server answers. It
   * never ends the run. */
  async run<R>(runId: string, work: (run: Run) => Promise<R>, options: Opening = {}): Promise<R> {
    const run = await this.open(runId, options);
    try {
      return await work(run);
    } finally {
      await run.leave();
    }
  }

  /** Reads the state of a run, without claiming it; `undefined` for a run without records. */
  async recover(runId: string): Promise<Recovery | undefined> {
    const found = await this.#api.recovery(runId, false, true);
    return found && recoveryOf(found);
  }

  // For operators

  /** The runs, by id. */
  async *runs(terms: RunsQuery = {}): AsyncGenerator<RunLine> {
    yield* pages((cursor) => runsPage(this.#api, cursor, terms));
  }

  /** The effects of all runs, or of one, that may have happened and must be decided, with arguments and evidence. A token without the
   * scope `read_content` gets masked contents. */
  async *undecided(runId?: string): AsyncGenerator<Effect> {
    yield* pages((cursor) => undecidedPage(this.#api, cursor, runId));
  }

  /** Records a decision about an effect that `undecided` returned.
   *
   * * `done` has the effect's `result`. `adopt` makes the evidence the result.
   * * `not_done` lets the effect run again: make sure that no process can still do it. If evidence says that it happened, this throws
   *   `Conflict`, unless `against` names that evidence.
   *
   * Throws `Conflict` if the effect has changed since it was read: read it again, and decide again. */
  decide(effect: Effect, decision: Decision, deciding: Deciding): Promise<void> {
    return decide(this.#api, effect, decision, deciding);
  }

  /** Looks a call up: `status` is `completed`, `failed`, `pending` or `unknown`. Without `occurrence` it is the last call with these
   * arguments. Throws `ResultNotRecorded` for a result that is not in the journal. */
  lookup(runId: string, tool: string, args: unknown, options: { occurrence?: number } = {}): Promise<LookupAnswer> {
    return lookup(this.#api, runId, tool, args, options.occurrence);
  }
}

/** The items of all pages. */
async function* pages<T>(read: (cursor: string | undefined) => Promise<{ items: T[]; cursor: string | null | undefined }>): AsyncGenerator<T> {
  let cursor: string | null | undefined;
  do {
    const page = await read(cursor ?? undefined);
    yield* page.items;
    cursor = page.cursor;
  } while (cursor);
}

/** Makes a connection to the server at `url`, or to several servers of one journal. Connects with the first operation. */
export const connect = (url: string | readonly string[], settings: Settings = {}): Runlog => new Runlog(new Config(url, settings));
