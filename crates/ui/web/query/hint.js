// What an empty result may be due to: names that no series has, with buttons for the nearest; times without samples.
// Not here: how that is found (missing.js).
import { html, useEffect, useState } from "../lib/ui.js";
import { timeText } from "../format.js";
import { whyEmpty } from "./missing.js";
import { windowOf } from "./panel.js";
import { replaced } from "./replaced.js";

const TEXT_MAX = 80;

/** @param {{ panel: import("./panel.js").Panel, tenant: string, utc: boolean, onRun: (expr: string) => void, onChange: (fields: Partial<import("./panel.js").Panel>) => void }} props */
export function Hint({ panel, tenant, utc, onRun, onChange }) {
  const [found, setFound] = useState(/** @type {import("./missing.js").Found | null} */ (null));
  const { expr, end, range, step, tab } = panel;
  useEffect(() => {
    const stop = new AbortController(), window = windowOf(panel), isInstant = tab === "table", at = end || Date.now() / 1000;
    setFound(null);
    whyEmpty(expr, isInstant ? at : window.start, isInstant ? at : window.end, stop.signal).then(setFound, () => { /* The result stays empty without a reason. */ });
    return () => stop.abort();
  }, [expr, end, range, step, tab, tenant]);
  if (!found) return null;
  // A tenth of the range after the newest sample, so that it is not at the edge.
  const show = (/** @type {number} */ newest) => onChange({ end: Math.ceil(newest + (tab === "table" ? 1 : range / 10)) });
  return html`<div class="hint" role="status">
    ${found.missing.map(one => html`<p key=${one.text}>${one.text} ${one.nearest.length > 0 && html`<span>${one.isNear ? "Nearest" : "Values"}: ${one.nearest.map(to => html`<button key=${to} class="link mono" title=${to} onClick=${() => onRun(replaced(expr, { ...one, to }))}>${to.length > TEXT_MAX ? to.slice(0, TEXT_MAX) + "…" : to}</button> `)}</span>`}</p>`)}
    ${found.elsewhere.map(({ text, newest }) => html`<p key=${text}><span class="mono">${text}</span> has no samples ${tab === "table" ? "at this time" : "in this range"}${newest === null ? "." : html`; last sample at <button class="link" onClick=${() => show(newest)}>${timeText(newest, utc)}</button>.`}</p>`)}
    ${!found.missing.length && !found.elsewhere.length && found.others.length > 0 && html`<p>Every selector has samples here: functions, filters or matching of the expression leave none.</p>`}</div>`;
}
