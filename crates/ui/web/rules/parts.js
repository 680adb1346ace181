// Small parts of the pages of rules and alerts: states, times, labels that filter, annotations with links.
// Not here: lists (pages/rules.js, pages/alerts.js); the details of a rule (detail.js).
import { html, useEffect, useState } from "../lib/ui.js";
import { coarseText, timeText } from "../format.js";
import { patch, route } from "../route.js";
import { hasMatcher, toggled } from "./filter.js";
import { linkedParts, STATES, timing } from "./model.js";

/** @typedef {import("./model.js").Labels} Labels */

const TICK_MS = 1000;

/** Puts the cursor into the filter of the page. */
export function focusFilter() {
  /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"))?.focus();
}

/** The present, again every second while the page is visible. */
export function useNow() {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => { if (!document.hidden) setNow(Date.now()); }, TICK_MS);
    return () => clearInterval(timer);
  }, []);
  return now;
}

/** @typedef {{ keys: Set<string>, has: (key: string) => boolean, toggle: (key: string) => void, set: (keys: string[], isOpen: boolean) => void }} Open Keys of what is open. */

/** What is open on a page; it stays open when the list is fetched again, and while it is out of view. @returns {Open} */
export function useOpen() {
  const [keys, setKeys] = useState(/** @type {Set<string>} */ (new Set()));
  const toggle = (/** @type {string} */ key) => setKeys(now => { const next = new Set(now); if (!next.delete(key)) next.add(key); return next; });
  const set = (/** @type {string[]} */ all, /** @type {boolean} */ isOpen) => setKeys(now => { const next = new Set(now); for (const key of all) isOpen ? next.add(key) : next.delete(key); return next; });
  return { keys, has: key => keys.has(key), toggle, set };
}

/** A button that opens and closes what belongs to it. @param {{ open: Open, id: string, children: any, title?: string }} props */
export const Fold = ({ open, id, children, title }) => html`<button class="fold-line" aria-expanded=${open.has(id)} title=${title} onClick=${() => open.toggle(id)}><span aria-hidden="true">${open.has(id) ? "▾" : "▸"}</span> ${children}</button>`;

/** State of a rule or alert; a failed rule has that as its state. @param {{ state: string, health?: string }} props */
export function State({ state, health = "ok" }) {
  const text = health === "err" ? "failed" : state === "recording" && health !== "ok" ? health : state;
  return html`<span class=${`badge state-${text === "failed" || text === "recording" || STATES.includes(text) ? text : "unknown"}`}>${text}</span>`;
}

/** A time as its distance from the present, with the whole time on request of the pointer. @param {{ ms: number | null, now: number, utc: boolean, none: string }} props */
export const Ago = ({ ms, now, utc, none }) => (ms === null ? html`<span>${none}</span>` : html`<span title=${timeText(Math.floor(ms / 1000), utc)}>${coarseText(Math.max(0, now - ms) / 1000)} ago</span>`);

/** Labels; a click on one filters by it, or takes that filter back. @param {{ labels: Labels }} props */
export function Chips({ labels }) {
  const filter = route.value.params.get("search") ?? "";
  return html`${Object.entries(labels).map(([label, value]) => {
    const isOn = hasMatcher(filter, label, value);
    return html`<button key=${label} class="chip mono" aria-pressed=${isOn} title=${`${label}="${value}"\n${isOn ? "Filters by this label: take it back" : "Filter by this label"}`}
      onClick=${() => patch({ search: toggled(filter, label, value) }, "replace")}>${label}="${value}"</button>`;
  })}`;
}

/** A text whose addresses are links. @param {{ text: string }} props */
const Linked = ({ text }) => html`${linkedParts(text).map((part, idx) => (part.href ? html`<a key=${idx} href=${part.href} target="_blank" rel="noopener noreferrer">${part.text}</a>` : part.text))}`;

/** @param {{ annotations: Labels }} props */
export const Annotations = ({ annotations }) => html`${Object.entries(annotations).map(([name, text]) => html`<div class="annotation" key=${name}><span class="soft">${name}</span> <span><${Linked} text=${text} /></span></div>`)}`;

/** Time since which an alert is active, and when its state changes by itself. @param {{ alert: import("./model.js").Alert, now: number, utc: boolean }} props */
export function Since({ alert, now, utc }) {
  const { activeForMs, firesInMs, endsInMs } = timing(alert, now), inText = (/** @type {number} */ ms) => (ms > 0 ? `in ${coarseText(ms / 1000)}` : "at the next round");
  const next = firesInMs !== null ? `fires ${inText(firesInMs)}` : endsInMs !== null ? `condition ended, resolves ${inText(endsInMs)}` : "";
  return html`<span title=${alert.activeMs === null ? "" : timeText(Math.floor(alert.activeMs / 1000), utc)}>${activeForMs === null ? "" : `for ${coarseText(activeForMs / 1000)}`}</span>${next && html`<span class="soft">${next}</span>`}`;
}
