// Reads the calls that the last checkpoint covers, as soon as a new call may equal one of them. Opening a run reads no calls.
//
//   call with a key     ─▶ many calls, and a server that looks keys up: one lookup; otherwise: all calls, once
//   call without a key  ─▶ a process that did not resume at the checkpoint: all calls, once

import { RECOVERY_PAGE, type Api } from "./api.js";
import { Usage } from "./errors.js";
import type { CallKey, Replay } from "./replay.js";
import { utf8 } from "./sha256.js";

/** The highest number that a checkpoint covers if a list of its calls costs one request. */
const LISTED_MAX = RECOVERY_PAGE;
/** The maximum number of bytes of a key that is looked up: proxies limit the length of a URL. */
const KEY_BYTES_MAX = 1024;

export class Covered {
  constructor(readonly api: Api, readonly runId: string) {}

  /** Adds the covered call with a key, or the covered calls without a key, if the run has them. */
  async find(replay: Replay, key: CallKey | undefined): Promise<void> {
    if (!replay.needsCovered(key)) return;
    if (key && (await this.#lookUp(replay, key))) return;
    await this.readAll(replay);
  }

  /** Looks the key up, if that costs less than the whole list. Returns whether the replay now has what the journal has. */
  async #lookUp(replay: Replay, key: CallKey): Promise<boolean> {
    const { position } = replay;
    if (!position || replay.covers <= LISTED_MAX || utf8(key.key).length > KEY_BYTES_MAX) return false;
    if (!(await this.api.features()).has("call_keys")) return false;
    try {
      const found = await this.api.callWithKey(this.runId, key.tool, key.key, position);
      if (!found) return true;
      // A call that ended later may be another process's: this handle must notice that it lost the run.
      const hasEnded = found.status === "completed" || found.status === "failed";
      if (!hasEnded || !found.request_record_id || !found.position || found.position.offset > position.offset) return false;
      replay.addKeyed(key, { id: found.request_record_id, fingerprint: found.fingerprint, tool: key.tool });
      return true;
    } catch (error) {
      // Another server of the connection answered, which lacks the feature.
      if (error instanceof Usage) return false;
      throw error;
    }
  }

  /** Adds all covered calls, once. */
  async readAll(replay: Replay): Promise<void> {
    if (!replay.lacksCovered) return;
    const found = await this.api.recovery(this.runId, true, false);
    replay.addCovered(found ?? { completed: [], pending: [] });
  }
}
