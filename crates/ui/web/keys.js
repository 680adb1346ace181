// Keys of the whole interface: registered with a sentence, which the list of keys (`?`) shows.
import { signal } from "./lib/ui.js";

/** @typedef {{ key: string, what: string, run: () => void }} Key A `key` is one character, or two in a row like `g q`. */

/** Keys of the shell and of the page that is open. */
export const keys = signal(/** @type {Key[]} */ ([]));
export const isHelpOpen = signal(false);
const PAIR_MS = 1200;
let first = "", firstAt = 0;

/** Registers keys until the returned function is called. @param {Key[]} added */
export function register(added) {
  keys.value = [...keys.value, ...added];
  return () => { keys.value = keys.value.filter(key => !added.includes(key)); };
}

/** Returns true if a key is text for the element that has the focus. @param {KeyboardEvent} event */
function isTyping(event) {
  const target = event.composedPath()[0];
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || isTyping(event)) return;
  if (event.key === "?") { isHelpOpen.value = !isHelpOpen.value; return; }
  const pair = performance.now() - firstAt < PAIR_MS ? `${first} ${event.key}` : "";
  const found = keys.value.find(key => key.key === pair) ?? keys.value.find(key => key.key === event.key);
  first = event.key;
  firstAt = performance.now();
  if (found) { event.preventDefault(); found.run(); }
});
