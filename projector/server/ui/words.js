// @ts-check
import { visible } from './exact.js';

/** The four decisions, in the order of the form. `keyed`: what follows if the call has an idempotency key. */
export const CHOICES = [
  { decision: 'adopt', icon: 'adopt', title: 'It happened, as the late result says',
    follows: 'The agent gets this result, and continues with it.', action: 'Adopt the late result' },
  { decision: 'done', icon: 'check', title: 'It happened, and I know the result',
    follows: 'You enter the result. The agent gets it as if the tool had returned it.', action: 'Record the result' },
  { decision: 'not_done', icon: 'cross', title: 'It did not happen',
    follows: 'The call may run again. If you are wrong, it happens twice.',
    keyed: 'The call may run again, with the same key. A receiver that knows the key does it once.', action: 'Allow the call to run again' },
  { decision: 'give_up', icon: 'unknown', title: 'Nobody can find out',
    follows: 'The agent gets an error. The call counts as failed and never runs again.', action: 'Count the call as failed' },
];

/** @type {Record<string, string>} */
export const DECIDED = {
  adopt: 'a late result counts',
  done: 'it happened, with a result that a person entered',
  not_done: 'it did not happen; the call may run again',
  give_up: 'nobody can find out; the call counts as failed',
};

/** @type {Record<string, string>} */
const REASONS = {
  fenced: 'another process had taken the run over',
  transition: 'its call had already ended, or never began',
  conflict: 'another record has its id',
  sequence: 'a number of its writer is missing or was used before',
  gap: 'a number of the run is missing',
  stale_decision: 'the effect changed before the decision arrived',
  not_started_here: 'another process had started the call',
  checkpoint: 'the checkpoint does not fit the run',
  ended: 'the run had ended',
  not_staged: 'nothing was staged',
  batch: 'a record of its batch was refused',
  wrong_partition: 'it is in the partition of other runs',
};
/** Why bytes are no record. @type {Record<string, string>} */
const UNREADABLE = { not_framed: 'they do not begin as a record does', undecodable: 'they do not fit their schema', too_large: 'they are too large' };
/** @param {string} reason */
export const unreadable = (reason) => UNREADABLE[reason] || reason.replace(/_/g, ' ');

/** @param {string} reason */
export const reason = (reason) => REASONS[reason] || reason.replace(/_/g, ' ');

/** The kinds of refused requests: a title, and what to do. @type {Record<string, [string, string]>} */
const PROBLEMS = {
  unauthenticated: ['This server asks for a token', 'Enter a valid one. Nothing happened.'],
  forbidden: ['Your token does not allow this', 'Nothing happened.'],
  doubt: ['This run is in doubt', 'Its home was lost. “runlog home accept” frees it.'],
  mirror: ['This server does not read the journal’s home', 'Nothing happened. The home accepts decisions and skips.'],
  not_here: ['This server lacks the partition', 'Nothing happened. Another server has it.'],
  conflict: ['The journal knows more than this page showed', 'Nothing happened.'],
  stale: ['The index is behind the log', 'It will catch up; the page asks again.'],
  partition_stopped: ['A partition is stopped', 'An operator must act: “runlog doctor” says what to do.'],
  overloaded: ['The server has too much to do', 'Nothing happened. The page asks again.'],
  unavailable: ['The server cannot answer now', 'The page asks again.'],
  not_found: ['The journal has no such thing', 'The address may be wrong, or your token may not show it.'],
  missing_content: ['Content is missing', 'It must be restored in the content store.'],
  unlisted: ['The page did not find the effect', 'The list lacks it, or it changed. Open its run.'],
  away: ['The server does not answer', 'The page asks again every few seconds.'],
};
/** @param {{ kind?: string, reason?: string }} problem @returns {[string, string]} */
export const problem = ({ kind, reason }) => PROBLEMS[reason || ''] || PROBLEMS[kind || ''] || ['The server refused this', ''];

/** Whether a refused request may have had an effect. @param {{ kind?: string, reason?: string }} problem */
export const mayBeDone = ({ kind, reason }) => ['away', 'unavailable', 'stale', 'internal'].includes(kind || '') && !PROBLEMS[reason || ''];

/** Why a server accepts no decision and no skip, or an empty text. @param {{ role: string, log_id?: string, home?: { log: string } }} journal */
export function readOnly({ role, log_id: own, home }) {
  const doctor = ': “runlog doctor” says what to do.';
  if (role === 'contested') return 'Two logs claim to be the journal’s home' + doctor;
  if (role !== 'mirror') return '';
  return home?.log === own ? 'It must be restarted' + doctor : 'It does not read the journal’s home. The home is the log ' + visible(home?.log || 'unknown') + '.';
}

/** The places of payloads that a line lacks. @type {Record<string, string>} */
export const APART = { stored_payload: 'In the content store', encrypted: 'Encrypted by its writer' };

/** @type {Record<string, string>} */
const TYPES = {
  run_claim: 'takeover', conversation_turn: 'turn', loop_checkpoint: 'checkpoint', tool_call_requested: 'call begins',
  tool_call_completed: 'result', tool_call_failed: 'failure', tool_call_attempt: 'call begins again',
  effect_resolution: 'decision', run_lifecycle: 'state of the run',
};
/** @param {string} type */
export const type = (type) => TYPES[type] || type.replace(/_/g, ' ');

/** Returns whether a process can continue, in words. @param {{ resumable: boolean, status: string, pending: any[] }} recovery */
export function resumes({ resumable, status, pending }) {
  if (status !== 'open') return 'The run has ended';
  if (resumable) return 'It can continue at once';
  return pending.some((effect) => effect.class !== 'retry_safe') ? 'New calls wait for a decision' : 'It cannot continue';
}

/** @param {number} millis */
export function duration(millis) {
  if (!(millis >= 1)) return '0 ms';
  if (millis < 1000) return Math.round(millis) + ' ms';
  const seconds = millis / 1000;
  if (seconds < 59.95) return (seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)) + ' s';
  const minutes = seconds / 60;
  if (minutes < 59.5) return Math.round(minutes) + ' min';
  const hours = minutes / 60;
  if (hours < 35.95) return (hours < 10 ? hours.toFixed(1) : Math.round(hours)) + ' h';
  return Math.round(hours / 24) + ' days';
}

/** @param {number | null | undefined} millis */
export function ago(millis) {
  if (millis === null || millis === undefined) return 'unknown';
  return millis < 2000 ? 'just now' : duration(millis) + ' ago';
}

/** @param {number | null | undefined} number */
export const count = (number) => (number === null || number === undefined ? '–' : number.toLocaleString('en'));

/** @param {number} number @param {string} one @param {string} [many] */
export const plural = (number, one, many = one + 's') => count(number) + ' ' + (number === 1 ? one : many);

/** The date and time of an RFC 3339 text, UTC. @param {string | null | undefined} text */
export const moment = (text) => (text ? text.slice(0, 10) + ' ' + text.slice(11, 19) : 'unknown');

/** The time of day of an RFC 3339 text, UTC. @param {string | null | undefined} text */
export const clock = (text) => (text ? text.slice(11, 19) : '');

/** @param {number | null | undefined} epoch */
export const process = (epoch) => (!epoch ? 'a process without a claim' : epoch === 1 ? 'the first process' : 'takeover ' + (epoch - 1));

/** A position as the API takes it. @param {{ partition: number, offset: number }} position */
export const place = ({ partition, offset }) => partition + ':' + offset;

/** A long id with its middle left out. @param {string} text @param {number} [most] */
export function shorten(text, most = 48) {
  const letters = [...visible(text)];
  if (letters.length <= most) return letters.join('');
  const end = Math.floor(most / 3);
  return letters.slice(0, most - end - 1).join('') + '…' + letters.slice(-end).join('');
}
