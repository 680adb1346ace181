// Plot of a rule's expression over the last hour, with the threshold of a comparison with a number.
// Not here: how lines are drawn (query/graph.js), how the threshold is found (query/grammar.js).
import { html, useEffect, useState } from "../lib/ui.js";
import { Fault } from "../polled.js";
import { Code, loadBundle, thresholdOf } from "../query/grammar.js";
import { Graph } from "../query/graph.js";
import { Heatmap } from "../query/heatmap.js";
import { run } from "../query/languages.js";
import { readPanel, windowOf } from "../query/panel.js";
import { short } from "../format.js";
import { route } from "../route.js";

/** @typedef {import("../query/panel.js").Panel} Panel */
/** @typedef {import("../query/languages.js").Result} Result */

/** @type {import("../query/graph.js").Exemplar[]} */
const NO_MARKS = [];

/** The threshold of a query, if its grammar can be loaded. @param {string} query */
async function thresholdIn(query) {
  try { return thresholdOf(await loadBundle(), query); } catch { return null; }
}

/** @param {{ query: string, utc: boolean }} props */
export function Plot({ query, utc }) {
  const [panel, setPanel] = useState(() => readPanel(new URLSearchParams({ "g0.expr": query }), 0));
  const [state, setState] = useState(/** @type {{ result: Result | null, level: { expr: string, sign: string, value: number } | null, error: any }} */ ({ result: null, level: null, error: null }));
  const tenant = route.value.params.get("tenant"), { range, end } = panel;
  useEffect(() => {
    const stop = new AbortController();
    const draw = async () => {
      const level = await thresholdIn(query);
      return { level, result: await run({ ...panel, expr: level?.expr ?? query }, stop.signal), error: null };
    };
    draw().then(found => { if (!stop.signal.aborted) setState(found); }, error => { if (!stop.signal.aborted) setState({ result: null, level: null, error }); });
    return () => stop.abort();
  }, [query, tenant, range, end]);
  const change = (/** @type {Partial<Panel>} */ fields) => setPanel(now => ({ ...now, ...fields }));
  const zoom = (/** @type {number} */ from, /** @type {number} */ to) => change({ range: Math.max(1, Math.round(to - from)), end: Math.ceil(to) });
  const { result, level, error } = state, isHistogram = Boolean(result?.series.length && result.series.every(line => line.histograms));
  return html`<div class="rule-plot"><${Fault} error=${error} />
    ${level && html`<p class="soft">The query without its comparison <code>${level.sign} ${short(level.value)}</code>: <${Code} text=${level.expr} /></p>`}
    ${end > 0 && html`<button onClick=${() => change(readPanel(new URLSearchParams({ "g0.expr": query }), 0))}>Last hour</button>`}
    ${result?.warnings.map((text, at) => html`<div class="note" key=${at}>${text}</div>`)}
    ${!result && !error && html`<p class="empty">…</p>`}
    ${result && (!result.series.length ? html`<p class="empty">No series in the last hour</p>` : isHistogram ? html`<${Heatmap} times=${result.times} series=${result.series} utc=${utc} step=${windowOf(panel).step} />`
      : html`<${Graph} times=${result.times} series=${result.series} panel=${panel} utc=${utc} marks=${NO_MARKS} level=${level} isLow onZoom=${zoom} onChange=${change} />`)}</div>`;
}
