// Small parts of several pages: bars, lines of counts, choices that are in the address.
import { html, useState } from "./lib/ui.js";
import { count } from "./format.js";
import { patch, route } from "./route.js";

/** Part of a limit from which on its bar is a warning. */
export const NEAR = 0.9;
/** A bar for a number next to it. @param {{ part: number, of: number, isLimit?: boolean }} props */
export const Bar = ({ part, of, isLimit }) => html`<span class="bars" aria-hidden="true"><i class=${isLimit && part > NEAR * of ? "own near" : "own"} style=${{ width: `${Math.min(100, (100 * part) / (of || 1))}%` }}></i></span>`;

const SPARK = { width: 180, height: 20 };

/** Path of counts over time: one step per count, from the bottom. @param {number[]} counts @param {number} most */
export function stepsPath(counts, most) {
  const wide = SPARK.width / Math.max(1, counts.length);
  const y = (/** @type {number} */ value) => (SPARK.height - (value / (most || 1)) * (SPARK.height - 1)).toFixed(1);
  return `M0 ${SPARK.height}` + counts.map((value, idx) => `V${y(value)}H${((idx + 1) * wide).toFixed(1)}`).join("") + `V${SPARK.height}Z`;
}

/** Counts over time as an area. @param {{ counts: number[], most: number, label: string }} props */
export const Spark = ({ counts, most, label }) => html`<svg class="spark" viewBox=${`0 0 ${SPARK.width} ${SPARK.height}`} role="img" aria-label=${label}><path d=${stepsPath(counts, most)} /></svg>`;

/** A choice that is a parameter of the address; the first one is the default. @param {{ name: string, label: string, choices: [string, string][] }} props */
export function Choice({ name, label, choices }) {
  const now = route.value.params.get(name) ?? choices[0]?.[0];
  return html`<label>${label} <select value=${now} onChange=${(/** @type {any} */ event) => patch({ [name]: event.target.value === choices[0]?.[0] ? undefined : event.target.value }, "replace")}>
    ${choices.map(([value, text]) => html`<option key=${value} value=${value}>${text}</option>`)}</select></label>`;
}

/** Buttons for the values of a parameter of the address, each with a count; the first one is the default. @param {{ name: string, label: string, choices: [string, string, number][] }} props */
export function Switch({ name, label, choices }) {
  const now = route.value.params.get(name) ?? choices[0]?.[0];
  return html`<div class="switch" role="group" aria-label=${label}>${choices.map(([value, text, number]) => html`<button key=${value} aria-pressed=${now === value} onClick=${() => patch({ [name]: value === choices[0]?.[0] ? undefined : value }, "replace")}>${text} ${count(number)}</button>`)}</div>`;
}

/** A text that is a parameter of the address. @param {{ name: string, label: string, size?: number }} props */
export const Search = ({ name, label, size }) => html`<input type="search" size=${size ?? 24} aria-label=${label} placeholder=${label} value=${route.value.params.get(name) ?? ""}
  onInput=${(/** @type {any} */ event) => patch({ [name]: event.target.value }, "replace")} />`;

/** Heads of columns; those that begin with `#` are of numbers, which stand on the right; an empty one is of buttons. @param {string[]} names */
export const heads = names => html`<tr>${names.map(name => (!name ? html`<td key="none"></td>` : name.startsWith("#") ? html`<th key=${name} class="right">${name.slice(1)}</th>` : html`<th key=${name}>${name}</th>`))}</tr>`;

/** Characters of a text in a table before a button that shows the rest. */
const TEXT_MAX = 160, NARROW_TEXT_MAX = 48;

/** A text of any length, as a link if it has an address; the end of a long one is shown on request. @param {{ text: string, href?: string, isNarrow?: boolean }} props */
export function Long({ text, href, isNarrow }) {
  const [isOpen, setOpen] = useState(false);
  const most = isNarrow ? NARROW_TEXT_MAX : TEXT_MAX, isLong = text.length > most, shown = isLong && !isOpen ? `${text.slice(0, most)}…` : text;
  return html`<span class="long" title=${isLong ? text : undefined}>${href ? html`<a href=${href} data-page="query">${shown}</a>` : shown}${isLong && html` <button class="link" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${isOpen ? "less" : `all ${count(text.length)} characters`}</button>`}</span>`;
}

/** Returns true if a text has all words of a filter, in any case. @param {string} text @param {string} filter */
export const hasWords = (text, filter) => { const lower = text.toLowerCase(); return filter.toLowerCase().split(/\s+/).every(word => lower.includes(word)); };
