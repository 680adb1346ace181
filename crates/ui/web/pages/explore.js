// Explore: metrics by what is typed, and for one of them type, unit, help, labels, values and queries.
// Never the whole list: the server is asked for names that contain the text.
import { html, useEffect, useState } from "../lib/ui.js";
import { count, isPlain } from "../format.js";
import { data } from "../api.js";
import { labelNames, labelValues, LIMIT } from "../query/completion.js";
import { hrefOf, patch, route } from "../route.js";

const WAIT_MS = 150;
/** @typedef {{ type: string, unit: string, help: string }} Metadata */

export function Page() {
  const { params } = route.value, typed = params.get("search") ?? "", metric = params.get("metric") ?? "", tenant = params.get("tenant");
  const [found, setFound] = useState(/** @type {{ values: string[], isIncomplete: boolean } | null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => labelValues("__name__", typed, "", stop.signal).then(names => { setFound(names); setError(""); }, fault => { if (!stop.signal.aborted) setError(fault.message); }), WAIT_MS);
    return () => { stop.abort(); clearTimeout(timer); };
  }, [typed, tenant]);
  return html`<section class="panel"><h1>Metrics</h1>
    <input type="search" aria-label="Search metrics" placeholder="Search metrics" value=${typed} onInput=${(/** @type {any} */ event) => patch({ search: event.target.value }, "replace")} />
    ${error && html`<div class="error" role="alert">${error}</div>`}
    <div class="explore">
      <div class="rows tall" tabindex="0" role="region" aria-label="Metrics"><table><tbody>${found?.values.map(name => html`<tr key=${name} class=${name === metric ? "costly" : ""}><td class="mono"><a href=${hrefOf("explore", { search: typed, metric: name })} data-page="explore" aria-current=${name === metric ? "true" : undefined}>${name}</a></td></tr>`)}</tbody></table>
      ${found && html`<p class="soft">${found.isIncomplete ? `The first ${LIMIT} names: type on to see others.` : `${count(found.values.length)} names`}</p>`}</div>
      ${metric && html`<${Metric} key=${metric} name=${metric} />`}
    </div></section>`;
}

/** Queries that fit the type of a metric. @param {string} name @param {string} type */
export function queriesOf(name, type) {
  const selector = isPlain(name) ? name : `{${JSON.stringify(name)}}`, bucket = name.endsWith("_bucket");
  if (bucket) return [`histogram_quantile(0.99, sum by (le) (rate(${selector}[5m])))`, `sum by (le) (rate(${selector}[5m]))`];
  if (type === "histogram" && !/_(sum|count)$/.test(name)) return [`histogram_quantile(0.99, sum(rate(${selector}[5m])))`, `sum(rate(${selector}[5m]))`];
  if (type === "counter" || /_(total|sum|count)$/.test(name)) return [`sum(rate(${selector}[5m]))`, `topk(10, rate(${selector}[5m]))`];
  return [selector, `avg(${selector})`, `max_over_time(${selector}[1h])`];
}

/** @param {{ name: string }} props */
function Metric({ name }) {
  const [meta, setMeta] = useState(/** @type {Metadata | null} */ (null));
  const [labels, setLabels] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    const stop = new AbortController();
    data("api/v1/metadata", { metric: name, limit_per_metric: "1" }, stop.signal).then(found => setMeta(found[name]?.[0] ?? null), () => {});
    labelNames("", name, stop.signal).then(found => setLabels(found.values), () => {});
    return () => stop.abort();
  }, [name]);
  return html`<section aria-label="Metric"><h2 class="mono">${name}</h2>
    <p>${meta ? [meta.type, meta.unit, meta.help].filter(Boolean).join(" · ") : html`<span class="soft">no metadata</span>`}</p>
    <h3>Queries</h3><ul class="plain">${queriesOf(name, meta?.type ?? "").map(query => html`<li key=${query}><a class="mono" href=${hrefOf("query", { "g0.expr": query, "g0.tab": "graph" })} data-page="query">${query}</a></li>`)}</ul>
    <h3>Labels</h3>${labels.map(label => html`<${Label} key=${label} metric=${name} label=${label} />`)}</section>`;
}

/** @param {{ metric: string, label: string }} props */
function Label({ metric, label }) {
  const [found, setFound] = useState(/** @type {{ values: string[], isIncomplete: boolean } | null} */ (null));
  const load = (/** @type {any} */ event) => { if (event.target.open && !found) labelValues(label, "", metric, AbortSignal.timeout(10_000)).then(setFound, () => setFound({ values: [], isIncomplete: false })); };
  const selector = (/** @type {string} */ value) => `{__name__=${JSON.stringify(metric)},${isPlain(label) ? label : JSON.stringify(label)}=${JSON.stringify(value)}}`;
  return html`<details onToggle=${load}><summary class="mono">${label}</summary><ul class="plain">${found?.values.map(value => html`<li key=${value}><a class="mono" href=${hrefOf("query", { "g0.expr": selector(value), "g0.tab": "table" })} data-page="query">${value}</a></li>`)}</ul>
    ${found?.isIncomplete && html`<p class="soft">The first ${LIMIT} values.</p>`}</details>`;
}
