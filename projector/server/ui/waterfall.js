// @ts-check
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js';
import { kindOf, timeScale } from './fold.js';
import { html, Rows } from './parts.js';
import * as words from './words.js';

/** Heights of the slider's ticks by kind, as a part of the track; others have 0.26. @type {Record<string, number>} */
const TICKS = { claim: 0.86, checkpoint: 0.66, decision: 0.86, failed: 0.5, done: 0.4, call: 0.4 };

/** A slider over the records, with a band for each claim. `at` is the index of the chosen record. */
export function Slider({ entries, bands, at, onChange, refused }) {
  const canvas = useRef(/** @type {any} */ (null));
  const track = useRef(/** @type {any} */ (null));
  const [width, setWidth] = useState(0);
  const last = entries.length - 1;
  const part = (index) => (last > 0 ? index / last : 1);
  const [scheme, setScheme] = useState(0);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => setWidth(track.current?.clientWidth || 0));
    watch.observe(track.current);
    const redraw = () => setScheme((count) => count + 1);
    const themes = new MutationObserver(redraw);
    themes.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] });
    const system = matchMedia('(prefers-color-scheme: dark)');
    system.addEventListener('change', redraw);
    return () => { watch.disconnect(); themes.disconnect(); system.removeEventListener('change', redraw); };
  }, []);
  useEffect(() => {
    const { current } = canvas;
    const ratio = devicePixelRatio || 1;
    const height = 30;
    current.width = width * ratio;
    current.height = height * ratio;
    const context = current.getContext('2d');
    context.scale(ratio, ratio);
    const style = getComputedStyle(current);
    /** @type {Record<string, string>} */
    const colours = {};
    const colour = (kind) => (colours[kind] ??= probe(current, '--k-' + kind) || style.color);
    const tick = Math.max(1, Math.min(3, (width / Math.max(1, entries.length)) * 0.5));
    const drawn = new Map();
    for (const each of entries) {
      const x = Math.round(part(each.index) * (width - tick));
      const kind = kindOf(each.type);
      const tall = (TICKS[kind] || 0.26) * height;
      if (!(drawn.get(x)?.tall >= tall)) drawn.set(x, { each, kind, tall, x });
    }
    for (const { each, kind, tall, x } of drawn.values()) {
      context.globalAlpha = each.index > at ? 0.3 : 1;
      context.fillStyle = colour(kind);
      context.fillRect(x, height - tall, tick, tall - 3);
    }
    context.globalAlpha = 1;
    context.fillStyle = colour('failed');
    for (const index of refused) {
      const x = part(index) * (width - tick) + tick / 2;
      context.beginPath();
      context.moveTo(x - 4, 1); context.lineTo(x + 4, 1); context.lineTo(x, 7);
      context.fill();
    }
  }, [entries, width, at, scheme, refused]);
  const pick = (event) => {
    const box = track.current.getBoundingClientRect();
    onChange(Math.round(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * last));
  };
  const keys = (event) => {
    const next = { ArrowLeft: at - 1, ArrowDown: at - 1, ArrowRight: at + 1, ArrowUp: at + 1, PageDown: at - 20, PageUp: at + 20, Home: 0, End: last }[/** @type {string} */ (event.key)];
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    onChange(Math.max(0, Math.min(last, next)));
  };
  const chosen = entries[at];
  return html`<div class="slider"><div class="bands" aria-hidden="true">${bands.map(({ epoch, by, from, to }) => {
    const size = (part(Math.min(last, to + 1)) - part(from)) * 100;
    return html`<span key=${from} class=${epoch > 1 ? 'again' : ''} style=${{ left: part(from) * 100 + '%', width: Math.max(size, 0.4) + '%' }} title=${words.process(epoch) + ' ' + by}>${size * width > 5000 ? html`<bdi>${words.process(epoch)}${by ? ' · ' + by : ''}</bdi>` : ''}</span>`;
  })}</div>
    <div class="track" ref=${track} role="slider" tabindex="0" aria-label="Position in the run" aria-valuemin="1" aria-valuemax=${entries.length} aria-valuenow=${at + 1}
      aria-valuetext=${chosen ? 'record ' + (at + 1) + ' of ' + entries.length + ', ' + words.type(chosen.type) + ', at ' + words.place(chosen) : undefined} onKeyDown=${keys}
      onPointerDown=${(event) => { track.current.setPointerCapture(event.pointerId); pick(event); }} onPointerMove=${(event) => { if (event.buttons & 1) pick(event); }}>
      <canvas ref=${canvas} aria-hidden="true"></canvas><i class="knob" style=${{ left: part(at) * 100 + '%' }}></i></div></div>`;
}

/** A custom colour as the browser computes it, since a canvas does not know light-dark(). @param {HTMLElement} near @param {string} name */
function probe(near, name) {
  const element = document.createElement('i');
  element.style.color = 'var(' + name + ')';
  near.parentElement?.append(element);
  const { color } = getComputedStyle(element);
  element.remove();
  return color;
}

function Mark({ row, from, to, isPending, isLater, length }) {
  const left = from * 100 + '%';
  if (row.status) {
    const size = Math.max(0, to - from) * 100;
    const label = isLater ? '' : isPending ? 'no result' : (row.note ? row.note + ', ' : row.status === 'failed' ? 'failed, ' : '') + length;
    return html`<i class=${'bar ' + (isPending ? 'pending' : row.status) + (row.note ? ' by-decision' : '')} style=${{ left, width: size + '%' }}></i>
      ${to > 0.8 ? html`<span class="length" style=${{ right: (1 - from) * 100 + '%' }}>${label}</span>` : html`<span class="length" style=${{ left: to * 100 + '%' }}>${label}</span>`}`;
  }
  return html`<i class=${'mark ' + row.kind} style=${{ left }}></i>`;
}

/** The rows. `upTo` is the index of the chosen position; later rows are pale. */
export function Waterfall({ rows, entries, upTo, scale, chosen, onChoose }) {
  const last = Math.max(1, entries.length - 1);
  const time = useMemo(() => (scale === 'time' ? timeScale(entries.map((each) => each.time)) : null), [entries, scale]);
  const isShort = time && time.to - time.from < 10000;
  const clock = (stamp) => (isShort ? stamp.slice(11, 23).replace('Z', '') : words.clock(stamp));
  const place = (each) => (time ? time.at(each.time) : each.index / last);
  const now = entries[Math.min(upTo, entries.length - 1)];
  const index = rows.findIndex(({ key }) => key === chosen);
  const render = (row) => {
    const isPending = row.kind === 'call' && row.status === 'pending';
    const isLater = row.first.index > upTo;
    const end = isPending ? (isLater ? entries[last] : now) : row.last;
    const from = place(row.first);
    return html`<button type="button" class=${'wf-row ' + row.kind + (isLater ? ' later' : '') + (row.key === chosen ? ' chosen' : '')} aria-pressed=${row.key === chosen} onClick=${() => onChoose(row)}>
      <span class="wf-name"><i class=${'dot ' + (isPending ? 'pending' : row.kind === 'call' ? row.status : row.kind)}></i><b><bdi>${words.shorten(row.name, 28)}</bdi></b><bdi class="wf-text">${row.text}</bdi></span>
      <span class="wf-bar"><${Mark} row=${row} from=${from} to=${Math.max(from, place(end))} isPending=${isPending} isLater=${isLater} length=${words.duration(end.time - row.first.time)} /></span></button>`;
  };
  const line = place(now || entries[0]);
  return html`<div class="waterfall"><div class="wf-axis" aria-hidden="true"><span></span><span class="wf-scale">${time ? html`<i>${clock(entries[0].stamp)}</i><i class="end">${clock(entries[entries.length - 1].stamp)}</i>${time.cuts.length <= 8 ? time.cuts.map((cut) => html`<i key=${cut.at} class="cut" style=${{ left: cut.at * 100 + '%' }}>${words.duration(cut.length)}</i>`) : null}`
    : html`<i>record 1</i><i class="end">record ${words.count(entries.length)}</i>`}</span></div>
    <div class="wf-box"><div class="wf-lines" aria-hidden="true"><span></span><span class="wf-scale">${time?.cuts.map((cut) => html`<i key=${cut.at} class="gap" style=${{ left: (cut.at - cut.width / 2) * 100 + '%', width: cut.width * 100 + '%' }}></i>`)}<i class="now-line" style=${{ left: line * 100 + '%' }}></i></span></div>
    <${Rows} items=${rows} height=${30} label="Records" render=${render} current=${index} /></div></div>`;
}
