// @ts-check
// Values that parts of the page share. A component that reads `value` while it renders is rendered again when the value changes.
import { options as hooks } from './vendor/preact.js';

/** @type {any} */
const options = hooks;
/** The component that renders now, or null. @type {any} */
let reader = null;

/** Adds a step to one of Preact's hooks. @param {string} name @param {(component: any) => void} step */
const extend = (name, step) => {
  const last = options[name];
  options[name] = (vnode) => { step(vnode.__c); last?.(vnode); };
};
// The names of the vendored version: before a component renders, after its children did, and when it is removed.
extend('__r', (component) => { reader = component; });
extend('diffed', () => { reader = null; });
extend('unmount', (component) => component?.heard?.forEach((listeners) => listeners.delete(component.redraw)));

/** @template T @param {T} value */
export function signal(value) {
  /** @type {Set<(value: T) => void>} */
  const listeners = new Set();
  return {
    get value() {
      if (reader) {
        const component = reader;
        component.redraw ??= () => component.setState({});
        (component.heard ??= new Set()).add(listeners);
        listeners.add(component.redraw);
      }
      return value;
    },
    set value(next) {
      if (next === value) return;
      value = next;
      listeners.forEach((listener) => listener(next));
    },
    /** Calls `listener` with the value now, and with each later one. @param {(value: T) => void} listener */
    subscribe(listener) {
      listeners.add(listener);
      listener(value);
    },
  };
}

/** A value that follows from signals. @template T @param {() => T} read */
export const computed = (read) => ({ get value() { return read(); } });
