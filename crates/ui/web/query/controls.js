// Range, end, step and look of a panel.
import { html, useEffect, useState } from "../lib/ui.js";
import { rangeSeconds, rangeText, timeSeconds, timeText } from "../format.js";

const RANGES = [60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000];
const MODES = /** @type {["lines" | "stacked" | "heatmap", string][]} */ ([["lines", "Lines"], ["stacked", "Stacked"], ["heatmap", "Heatmap"]]);

/** A text that is taken when it is complete and valid. @param {{ label: string, value: string, size: number, placeholder: string, parse: (text: string) => number, onValue: (value: number) => void }} props */
function Field({ label, value, size, placeholder, parse, onValue }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const isBad = text.trim() !== "" && !(parse(text) > 0);
  const take = () => { if (!isBad && text !== value) onValue(text.trim() ? parse(text) : 0); };
  return html`<label>${label} <input value=${text} size=${size} placeholder=${placeholder} spellcheck=${false} aria-invalid=${isBad}
    onInput=${(/** @type {any} */ event) => setText(event.target.value)} onBlur=${take} onKeyDown=${(/** @type {any} */ event) => { if (event.key === "Enter") take(); }} /></label>`;
}

/**
 * @param {{ panel: import("./panel.js").Panel, utc: boolean, isHeatmap: boolean, onChange: (fields: Partial<import("./panel.js").Panel>) => void }} props
 *   `isHeatmap`: the result has histograms alone, which are drawn as a heatmap in any mode.
 */
export function Controls({ panel, utc, isHeatmap, onChange }) {
  const isGraph = panel.tab === "graph", mode = isHeatmap ? "heatmap" : panel.mode, isLines = isGraph && mode !== "heatmap";
  const other = (/** @type {number} */ by) => RANGES[by > 0 ? RANGES.findIndex(range => range > panel.range) : RANGES.findLastIndex(range => range < panel.range)] ?? panel.range;
  const move = (/** @type {number} */ by) => { const end = Math.round((panel.end || Date.now() / 1000) + (by * panel.range) / 2); onChange({ end: end >= Date.now() / 1000 ? 0 : end }); };
  const switchOf = (/** @type {string} */ text, /** @type {boolean} */ isOn, /** @type {Partial<import("./panel.js").Panel>} */ fields) => html`<button class="toggle" aria-pressed=${isOn} onClick=${() => onChange(fields)}>${text}</button>`;
  return html`
    ${(panel.tab !== "table" || panel.lang !== "promql") && html`<span class="group"><button aria-label="Shorter range" onClick=${() => onChange({ range: other(-1) })}>−</button>
      <${Field} label="Range" value=${rangeText(panel.range)} size=${5} placeholder="1h" parse=${rangeSeconds} onValue=${(/** @type {number} */ range) => { if (range) onChange({ range }); }} />
      <button aria-label="Longer range" onClick=${() => onChange({ range: other(1) })}>+</button></span>`}
    <span class="group"><button aria-label="Earlier" onClick=${() => move(-1)}>‹</button>
      <${Field} label=${panel.tab === "table" ? "At" : "Until"} value=${panel.end ? timeText(panel.end, utc) : ""} size=${17} placeholder="now" parse=${(/** @type {string} */ text) => timeSeconds(text, utc)} onValue=${(/** @type {number} */ end) => onChange({ end })} />
      <button aria-label="Later" disabled=${!panel.end} onClick=${() => move(1)}>›</button>
      ${panel.end > 0 && html`<button onClick=${() => onChange({ end: 0 })}>Now</button>`}</span>
    ${isGraph && panel.lang === "promql" && html`<${Field} label="Step" value=${panel.step ? rangeText(panel.step) : ""} size=${4} placeholder="auto" parse=${rangeSeconds} onValue=${(/** @type {number} */ step) => onChange({ step })} />`}
    ${isGraph && html`<div class="switch" role="group" aria-label="Kind of graph">${MODES.map(([name, title]) => html`<button key=${name} aria-pressed=${mode === name} disabled=${isHeatmap && name !== "heatmap"} onClick=${() => onChange({ mode: name })}>${title}</button>`)}</div>`}
    ${isLines && switchOf("Log", panel.scale === "log", { scale: panel.scale === "log" ? "linear" : "log" })}
    ${isLines && panel.scale !== "log" && switchOf("From 0", panel.zero, { zero: !panel.zero })}
    ${isLines && panel.lang === "promql" && switchOf("Exemplars", panel.exemplars, { exemplars: !panel.exemplars })}`;
}
