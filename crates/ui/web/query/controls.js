// Range, end, step and look of a panel, in one line of a screen 1,280 px wide.
// Not here: the menu of ranges (range.js); the tabs (pages/query.js).
import { html, useState } from "../lib/ui.js";
import { rangeSeconds, rangeText, timeSeconds, timeText } from "../format.js";
import { Field } from "./field.js";
import { Range } from "./range.js";

const RANGES = [60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000];
const MODES = /** @type {["lines" | "stacked" | "heatmap", string][]} */ ([["lines", "Lines"], ["stacked", "Stacked"], ["heatmap", "Heatmap"]]);
/** @typedef {{ panel: import("./panel.js").Panel, utc: boolean, onChange: (fields: Partial<import("./panel.js").Panel>) => void }} Props */

/** @param {Props & { isHeatmap: boolean }} props `isHeatmap`: the result has histograms alone, which are drawn as a heatmap in any mode. */
export function Controls({ panel, utc, isHeatmap, onChange }) {
  const [isOpen, setOpen] = useState(false);
  const isText = panel.tab === "json" || panel.tab === "raw";
  const isInstant = panel.lang === "promql" && (panel.tab === "table" || (isText && panel.request === "instant"));
  return html`<${Times} panel=${panel} utc=${utc} isInstant=${isInstant} onChange=${onChange} />
    ${panel.tab === "graph" && html`<button class="toggle more" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>Look</button>
      <span class=${isOpen ? "looks open" : "looks"}><${Look} panel=${panel} utc=${utc} isHeatmap=${isHeatmap} onChange=${onChange} /></span>`}`;
}

/** The range, or the one time of an instant query, and buttons that move it. @param {Props & { isInstant: boolean }} props */
function Times({ panel, utc, isInstant, onChange }) {
  const other = (/** @type {number} */ by) => RANGES[by > 0 ? RANGES.findIndex(range => range > panel.range) : RANGES.findLastIndex(range => range < panel.range)] ?? panel.range;
  const move = (/** @type {number} */ by) => { const end = Math.round((panel.end || Date.now() / 1000) + (by * panel.range) / 2); onChange({ end: end >= Date.now() / 1000 ? 0 : end }); };
  return html`<span class="group"><button aria-label="Earlier" onClick=${() => move(-1)}>‹</button>
    ${isInstant ? html`<${Field} label="At" value=${panel.end ? timeText(panel.end, utc) : ""} size=${17} placeholder="now" parse=${(/** @type {string} */ text) => timeSeconds(text, utc)} onValue=${(/** @type {number} */ end) => onChange({ end })} />`
      : html`<button aria-label="Shorter range" onClick=${() => onChange({ range: other(-1) })}>−</button><${Range} panel=${panel} utc=${utc} onChange=${onChange} /><button aria-label="Longer range" onClick=${() => onChange({ range: other(1) })}>+</button>`}
    <button aria-label="Later" disabled=${!panel.end} onClick=${() => move(1)}>›</button>
    ${panel.end > 0 && html`<button class="now" title="Until now" aria-label="Until now" onClick=${() => onChange({ end: 0 })}>⇥</button>`}</span>`;
}

/** @param {Props & { isHeatmap: boolean }} props */
function Look({ panel, isHeatmap, onChange }) {
  const mode = isHeatmap ? "heatmap" : panel.mode, isLines = mode !== "heatmap";
  const switchOf = (/** @type {string} */ text, /** @type {boolean} */ isOn, /** @type {Partial<import("./panel.js").Panel>} */ fields) => html`<button class="toggle" aria-pressed=${isOn} onClick=${() => onChange(fields)}>${text}</button>`;
  return html`${panel.lang === "promql" && html`<${Field} label="Step" value=${panel.step ? rangeText(panel.step) : ""} size=${4} placeholder="auto" parse=${rangeSeconds} onValue=${(/** @type {number} */ step) => onChange({ step })} />`}
    <div class="switch" role="group" aria-label="Kind of graph">${MODES.map(([name, title]) => html`<button key=${name} aria-pressed=${mode === name} disabled=${isHeatmap && name !== "heatmap"} onClick=${() => onChange({ mode: name })}>${title}</button>`)}</div>
    ${isLines && switchOf("Log", panel.scale === "log", { scale: panel.scale === "log" ? "linear" : "log" })}
    ${isLines && panel.scale !== "log" && switchOf("From 0", panel.zero, { zero: !panel.zero })}
    ${isLines && panel.lang === "promql" && switchOf("Exemplars", panel.exemplars, { exemplars: !panel.exemplars })}`;
}
