// Range of a panel: presets, a range that is typed, or two times. A menu, so that it takes the room of one button.
// Not here: moving and scaling a range (controls.js).
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { rangeSeconds, rangeText, timeSeconds, timeText } from "../format.js";
import { Field } from "./field.js";

/** @typedef {import("./panel.js").Panel} Panel */

const PRESETS = [300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 2_592_000, 7_776_000];
const DAY = 86_400;

/** A range in one unit if it is one of the presets: `24h`, `7d`. @param {number} seconds */
export const presetText = seconds => (!PRESETS.includes(seconds) ? rangeText(seconds) : seconds > DAY ? `${seconds / DAY}d` : seconds >= 3600 ? `${seconds / 3600}h` : `${seconds / 60}m`);

/** Text of a range: relative, or both times, in full. @param {number} range @param {number} end 0 is now. @param {boolean} utc */
export const spanText = (range, end, utc) => (end ? `${timeText(Math.round(end - range), utc)} – ${timeText(end, utc)}` : `Last ${presetText(range)}`);

/** The same for a button: without what both times and this year have in common, and without seconds that are 0. @param {number} range @param {number} end @param {boolean} utc @param {string} year */
export function shortSpanText(range, end, utc, year) {
  if (!end) return spanText(range, end, utc);
  const trim = (/** @type {string} */ text) => text.replace(/:00$/, "").replace(new RegExp(`^${year}-`), "");
  const [from = "", to = ""] = spanText(range, end, utc).split(" – ");
  return `${trim(from)} – ${trim(from.slice(0, 10) === to.slice(0, 10) ? to.slice(11) : to)}`;
}

/** Range and end of two times as a browser's field has them (`2026-11-28T08:00`), or what is wrong. @param {string} from @param {string} to Empty is now. @param {boolean} utc @param {number} now Seconds. @returns {{ range: number, end: number } | string} */
export function spanOf(from, to, utc, now) {
  const start = timeSeconds(from, utc), end = to ? timeSeconds(to, utc) : now;
  if (Number.isNaN(start)) return "from has no time";
  if (Number.isNaN(end)) return "to has no time";
  return start < end ? { range: Math.max(1, Math.round(end - start)), end: to ? end : 0 } : "from has to be before to";
}

/** @param {{ panel: Panel, utc: boolean, onChange: (fields: Partial<Panel>) => void }} props */
export function Range({ panel, utc, onChange }) {
  const menu = useRef(/** @type {HTMLDetailsElement | null} */ (null));
  const close = () => { if (menu.current) menu.current.open = false; };
  const take = (/** @type {Partial<Panel>} */ fields) => { close(); menu.current?.querySelector("summary")?.focus(); onChange(fields); };
  useEffect(() => {
    const outside = (/** @type {PointerEvent} */ event) => { if (!menu.current?.contains(/** @type {Node} */ (event.target))) close(); };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, []);
  const onKey = (/** @type {KeyboardEvent} */ event) => { if (event.key === "Escape" && menu.current?.open) { event.stopPropagation(); take({}); } };
  return html`<details class="menu" ref=${menu} onKeyDown=${onKey}><summary title=${spanText(panel.range, panel.end, utc)} aria-label=${`Time range: ${spanText(panel.range, panel.end, utc)}`}>${shortSpanText(panel.range, panel.end, utc, timeText(Date.now() / 1000, utc).slice(0, 4))}</summary>
    <div class="sheet">
      <div class="presets" role="group" aria-label="Time range until now">${PRESETS.map(seconds => html`<button key=${seconds} aria-pressed=${!panel.end && panel.range === seconds} onClick=${() => take({ range: seconds, end: 0 })}>${presetText(seconds)}</button>`)}</div>
      <${Field} label="Range" value=${rangeText(panel.range)} size=${8} placeholder="1h" parse=${rangeSeconds} onValue=${(/** @type {number} */ range) => { if (range) onChange({ range }); }} />
      <${Times} panel=${panel} utc=${utc} onTake=${take} />
    </div></details>`;
}

/** Two times, with the calendar of the browser. @param {{ panel: Panel, utc: boolean, onTake: (fields: Partial<Panel>) => void }} props */
function Times({ panel, utc, onTake }) {
  const fieldText = (/** @type {number} */ seconds) => timeText(Math.round(seconds), utc).replace(" ", "T");
  const [times, setTimes] = useState({ from: "", to: "" });
  const now = Date.now() / 1000;
  useEffect(() => setTimes({ from: fieldText((panel.end || now) - panel.range), to: panel.end ? fieldText(panel.end) : "" }), [panel.range, panel.end, utc]);
  const found = spanOf(times.from, times.to, utc, now), fault = typeof found === "string" ? found : "";
  const apply = () => { if (typeof found !== "string") onTake(found); };
  return html`<div class="times" role="group" aria-label="Two times" onKeyDown=${(/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") apply(); }}>
    <label>From <input type="datetime-local" step="1" value=${times.from} aria-invalid=${Boolean(fault)} onInput=${(/** @type {any} */ event) => setTimes({ ...times, from: event.target.value })} /></label>
    <label>To <input type="datetime-local" step="1" value=${times.to} onInput=${(/** @type {any} */ event) => setTimes({ ...times, to: event.target.value })} /></label>
    <button disabled=${Boolean(fault)} onClick=${apply}>Apply</button> <span class="soft" role="status">${fault || (times.to ? "" : "no time: until now")}</span></div>`;
}
