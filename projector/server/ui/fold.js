// @ts-check
// Pure functions.
import { brief, visible, write } from './exact.js';
import * as words from './words.js';

/** A record without its content. `index` is its place among the loaded records.
 * @typedef {{ index: number, id: string, type: string, partition: number, offset: number, batchIndex: number, seq: number, epoch: number, time: number,
 *   stamp: string, text: string, call: string, status: string, cursor: string, line: any }} Entry */

/** @typedef {{ key: string, kind: string, name: string, text: string, first: Entry, last: Entry, status: string, note: string }} Row */

/** Returns how the server hid a value: the member's name, or an empty text. */
export function hiding(value) {
  const [name, more] = value && typeof value === 'object' ? Object.keys(value) : [];
  const why = value?.[name];
  return !more && { masked: ['public', 'internal', 'content_refs_only', 'sensitive', 'secret'].includes(why), unreadable: typeof why === 'string',
    dropped: Number.isInteger(why?.partition) && Number.isInteger(why.offset) }[name] === true ? name : '';
}

const masked = (value) => ({ masked: 'masked', dropped: 'deleted', unreadable: 'not shown' }[hiding(value)] || '');

/** Returns the marker for a result of `call` that could not be recorded, or null. */
export function marker(result, call) {
  const NAME = 'runlog.result_not_recorded';
  return result && call && typeof result === 'object' && Object.keys(result).join() === NAME && result[NAME]?.call === call ? result[NAME] : null;
}

export const keyOf = ({ run_id: run, kind, id }) => JSON.stringify([run, kind, id]);

export const proofOf = (each) => each.record_id + '\n' + each.content_hash;

/** Whether a late result says that the effect happened. */
export const happened = ({ status }) => ['completed', 'deduped', 'result_rewritten'].includes(status);

/** The end that a late result states. */
export const ended = (each) => (happened(each) ? 'happened' : each.status === 'failed' ? 'failed' : 'ended as ' + each.status.replace(/_/g, ' '));

/** Finds an effect in a page list. Null: the whole list lacks it. */
export function find({ items, more, last }, effect) {
  const found = items.find((each) => keyOf(each) === keyOf(effect));
  if (!found && (more || last?.unavailable_partitions?.length)) throw Object.assign(new Error('The effect cannot be found among the first ' + words.plural(items.length, 'effect') + '.'), { kind: 'unlisted' });
  return found ? { ...found, isTwin: items.filter(({ run_id: run, id }) => run === effect.run_id && id === effect.id).length > 1 } : null;
}

/** Returns the draft for the shown state. A draft about another state keeps its texts only. */
export const refit = (draft, { basis, revision }) => (draft.basis === basis && draft.revision === revision ? draft
  : { ...draft, decision: '', typed: '', against: '', force: false, isOld: !!draft.decision || !!draft.isOld, basis, revision });

const blanks = (text) => text.trim().replace(/\s+/g, ' ');

/** Whether a person typed a tool's name as the page shows it. */
export const isTyped = (typed, tool) => blanks(typed) === blanks(visible(tool));

/** The body of a decision, without the result. */
export function body({ decision, why, force }, who, { revision, basis, evidence }, isRunning) {
  const late = evidence.find((each) => each.adoptable);
  const names = late && (decision === 'adopt' || (decision === 'not_done' && happened(late)));
  return { decision, revision, basis: basis ?? undefined, evidence: names ? late.record_id : undefined, who: who.trim(), why: why.trim(), force: (isRunning && force) || undefined };
}

const short = (value) => masked(value) || words.shorten(value === undefined || value === null ? '' : brief(value), 160);

/** @param {number} index @param {boolean} keepsLine unless it is long @returns {Entry} */
export function entry(line, index, keepsLine) {
  const { payload, payload_type: type, position } = line;
  const content = masked(payload) ? {} : payload || {};
  const stamp = line.logged_at || line.timestamp;
  const text = masked(payload) || words.APART[content.type]?.toLowerCase() || {
    run_claim: () => short(content.claimed_by), conversation_turn: () => short(content.content), loop_checkpoint: () => 'covers ' + content.covers_journal_seq,
    tool_call_requested: () => short(content.arguments), tool_call_completed: () => short(content.result), tool_call_failed: () => short(content.error_message),
    effect_resolution: () => short(content.why), run_lifecycle: () => short(content.reason),
  }[/** @type {string} */ (type)]?.() || '';
  const name = { conversation_turn: content.kind, tool_call_requested: line.tool_name, effect_resolution: content.who, run_lifecycle: line.status,
    loop_checkpoint: content.checkpoint_seq, tool_call_attempt: content.attempt }[/** @type {string} */ (type)];
  return {
    index, id: line.record_id, type, partition: position.partition, offset: position.offset, batchIndex: position.index || 0, seq: line.journal_seq, epoch: line.epoch,
    time: Date.parse(stamp), stamp, text, call: line.answers || '', status: visible(String(name ?? content.decision ?? '')), cursor: line.cursor, line: keepsLine && JSON.stringify(payload ?? null).length < 20000 ? line : null,
    ...(type === 'effect_resolution' ? { decision: line.status } : {}),
  };
}

/** @param {string} type */
export const kindOf = (type) => ({
  run_claim: 'claim', conversation_turn: 'turn', loop_checkpoint: 'checkpoint', checkpoint: 'checkpoint', tool_call_requested: 'call', tool_call_completed: 'done',
  tool_call_failed: 'failed', tool_call_attempt: 'call', effect_resolution: 'decision', run_lifecycle: 'state',
})[type] || 'other';

/**
 * Folds records to rows: a call that began before the entry `upTo` and ended after it is pending.
 * @param {Entry[]} entries @param {number} upTo @returns {Row[]}
 */
export function fold(entries, upTo = Infinity) {
  /** @type {Row[]} */
  const rows = [];
  /** @type {Map<string, Row>} */
  const calls = new Map();
  for (const each of entries) {
    const row = { key: each.id + ':' + each.offset, kind: kindOf(each.type), name: words.type(each.type), text: each.text, first: each, last: each, status: '', note: '' };
    const call = calls.get(each.call);
    const counts = each.index <= upTo;
    switch (each.type) {
      case 'tool_call_requested':
        Object.assign(row, { name: each.status || 'call', status: 'pending' });
        calls.set(each.id, row);
        break;
      case 'tool_call_completed': case 'tool_call_failed':
        if (call) {
          if (counts || call.first.index > upTo) Object.assign(call, { last: each, status: each.type === 'tool_call_failed' ? 'failed' : 'completed' });
          continue;
        }
        break;
      case 'tool_call_attempt':
        row.name = 'begins again';
        row.text = 'attempt ' + each.status;
        break;
      case 'effect_resolution': {
        const { decision } = /** @type {any} */ (each);
        row.name = 'decision';
        row.text = each.status + ': ' + (words.DECIDED[decision] || decision);
        if (call && (counts || call.first.index > upTo) && decision !== 'not_done') Object.assign(call, { last: each, status: { give_up: 'failed', done: 'completed' }[decision] || 'decided', note: 'decided' });
        break;
      }
      case 'conversation_turn': row.name = each.status || 'turn'; break;
      case 'loop_checkpoint': row.name = 'checkpoint ' + each.status; break;
      case 'run_claim': row.name = each.epoch > 1 ? 'takeover ' + (each.epoch - 1) : 'first process'; break;
      case 'run_lifecycle': row.name = each.status || 'state'; break;
    }
    rows.push(row);
  }
  return rows;
}

/** The index of the last record before a position. A position in another partition has no place in the run: it is at the end. @param {Entry[]} entries */
export const before = (entries, { partition, offset }) => Math.max(0, entries.findLastIndex((each) => each.partition !== partition || each.offset <= offset));

/** Leaves the offset of `at` on the way back to `to`: the records of a batch have one position. @param {Entry[]} entries @param {number} at @param {number} to */
export function leave(entries, at, to) {
  while (to > 0 && to < at && entries[to].offset === entries[at].offset) to--;
  return to;
}

/** Whether the offset `asked`, or the newest record, is outside of the loaded records. @param {Entry[]} entries @param {number} asked or NaN */
export const isBeyond = (entries, asked, hasEarlier, reachesEnd) => (asked <= entries[entries.length - 1].offset ? hasEarlier && asked < entries[0].offset : !reachesEnd);

/** The time from the first to the last record, or null if some are not loaded. */
export const spanOf = (entries, hasEarlier, reachesEnd) => (hasEarlier || !reachesEnd ? null : entries[entries.length - 1].time - entries[0].time);

/** Whether the reader follows the run: asks for no offset, or is at the last loaded record, which is the newest. */
export const isNewest = (asked, isLast, reachesEnd, isDone) => (isNaN(asked) ? reachesEnd || !isDone : isLast && reachesEnd);

/** @param {Row[]} rows @param {Entry[]} entries */
export function withRefused(rows, anomalies, entries) {
  if (!anomalies.length) return rows;
  const all = rows.concat(anomalies.map(({ position, reason, record_id: id }) => {
    const first = { ...entries[before(entries, position)], id, partition: position.partition, offset: position.offset, batchIndex: position.index || 0, type: 'refused', line: null };
    return { key: 'refused:' + id + ':' + position.offset, kind: 'refused', name: 'refused', text: words.reason(reason), first, last: first, status: '', note: '' };
  }));
  const rank = ({ first }) => (first.partition === entries[0].partition ? first.offset : Infinity);
  return all.sort((a, b) => rank(a) - rank(b));
}

/**
 * A scale from times to 0…1. A gap longer than a second and twice all shorter gaps together gets a small width.
 * @param {number[]} times
 */
export function timeScale(times) {
  const sorted = [...new Set(times)].sort((a, b) => a - b);
  const gaps = sorted.slice(1).map((time, at) => ({ from: sorted[at], to: time, length: time - sorted[at] }));
  const byLength = gaps.slice().sort((a, b) => a.length - b.length);
  let sum = 0;
  let limit = Infinity;
  byLength.forEach(({ length }, at) => {
    if (limit === Infinity && at >= 2 && length > 1000 && length > 2 * sum) limit = length;
    sum += length;
  });
  const cuts = gaps.filter(({ length }) => length >= limit);
  const kept = gaps.reduce((all, { length }) => all + (length >= limit ? 0 : length), 0);
  const cutWidth = cuts.length ? Math.min(0.05, 0.4 / cuts.length) : 0;
  const unit = kept ? (1 - cutWidth * cuts.length) / kept : 0;
  /** @type {number[]} */
  const starts = [0];
  gaps.forEach(({ length }, at) => starts.push(starts[at] + (length >= limit ? cutWidth : length * unit)));
  /** @param {number} time */
  const at = (time) => {
    if (sorted.length < 2 || time <= sorted[0]) return 0;
    let low = 0;
    let high = sorted.length - 1;
    if (time >= sorted[high]) return starts[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= time) low = middle; else high = middle;
    }
    return starts[low] + (starts[high] - starts[low]) * ((time - sorted[low]) / (sorted[high] - sorted[low]));
  };
  return { at, from: sorted[0], to: sorted[sorted.length - 1], cuts: cuts.map(({ from, to, length }) => ({ at: (at(from) + at(to)) / 2, width: cutWidth, length })) };
}

/** @param {Entry[]} entries */
export function claims(entries) {
  /** @type {{ epoch: number, by: string, from: number, to: number }[]} */
  const bands = [];
  for (const each of entries) {
    const last = bands[bands.length - 1];
    if (each.type === 'run_claim' || !last) bands.push({ epoch: each.epoch, by: each.type === 'run_claim' ? each.text : '', from: each.index, to: each.index });
    else last.to = each.index;
  }
  return bands;
}

/** `fresh` is null if the effect is no longer pending, undefined if unknown. */
export function changes(before, fresh) {
  if (fresh === undefined) return ['The effect has changed.'];
  if (fresh === null) return ['The call has an end now: somebody decided, or its result arrived.'];
  const news = [];
  const known = new Set(before.evidence.map(proofOf));
  for (const each of fresh.evidence) {
    if (known.has(proofOf(each))) continue;
    const nth = before.evidence.length ? 'Another late result arrived' : 'A late result arrived';
    news.push(nth + ' at ' + words.clock(each.logged_at) + ' UTC. It says that the call ' + ended(each) + '.');
  }
  if (fresh.attempts > before.attempts) news.push('The call began again: attempt ' + fresh.attempts + '.');
  if (before.class !== fresh.class) news.push(fresh.class === 'retry_safe' ? 'The call may run again: somebody decided that it did not happen, or it has a key.' : 'The call may have happened.');
  if (!news.length) news.push('The effect changed after revision ' + before.revision + '; it has revision ' + fresh.revision + ' now.');
  return news;
}

/** What each of two checkpoints has and the other lacks: the messages between their common beginning and their common end, and members of the state. */
export function differ(pair) {
  const [a, b] = pair.map(({ messages }) => messages.map((each) => write(each)));
  const most = Math.min(a.length, b.length);
  let from = 0;
  let end = 0;
  while (from < most && a[from] === b[from]) from++;
  while (end < most - from && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const states = pair.map(({ state }) => (Object(state) === state ? state : { state }));
  return pair.map(({ messages, checkpoint_seq: nth }, at) => ({ nth, messages: messages.slice(from, messages.length - end),
    state: Object.fromEntries(Object.entries(states[at]).filter(([name, value]) => write(value) !== write(states[1 - at][name]))) }));
}

/** Bytes in lines of 16: the place, the hexadecimal digits, and the printable characters of ASCII. @param {string} hex */
export function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) || [];
    const text = pairs.map((pair) => String.fromCharCode(parseInt(pair, 16)).replace(/[^ -~]/, '.')).join('');
    lines.push((at / 2).toString(16).padStart(4, '0') + '  ' + pairs.join(' ').padEnd(47) + '  ' + text);
  }
  return lines.join('\n');
}
