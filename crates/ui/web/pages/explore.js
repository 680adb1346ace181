// Explore: metrics by what is typed, and for one of them type, unit, help, labels, values, use and queries.
// Never the whole list: the server is asked for names that contain the text.
// Not here: names of InfluxQL and Graphite (explore/others.js).
import { html, useEffect, useState } from "../lib/ui.js";
import { bytes, count, isPlain, timeText } from "../format.js";
import { data } from "../api.js";
import { Databases, Kinds, Paths } from "../explore/others.js";
import { labelNames, labelValues, LIMIT, metricNames } from "../query/completion.js";
import { hrefOf, patch, route } from "../route.js";
import { askedText } from "./usage.js";

const WAIT_MS = 150;
/** @typedef {{ type: string, unit: string, help: string }} Metadata */

export function Page() {
  const kind = route.value.params.get("kind") ?? "";
  const part = kind === "influxql" ? html`<${Databases} />` : kind === "graphite" ? html`<${Paths} />` : html`<${Metrics} />`;
  return html`<section class="panel"><h1>Explore</h1><${Kinds} kind=${kind} />${part}</section>`;
}

function Metrics() {
  const { params } = route.value, typed = params.get("search") ?? "", metric = params.get("metric") ?? "", tenant = params.get("tenant");
  const [found, setFound] = useState(/** @type {{ values: string[], isIncomplete: boolean } | null} */ (null));
  const [error, setError] = useState("");
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => metricNames(typed, stop.signal).then(names => { setFound(names); setError(""); }, fault => { if (!stop.signal.aborted) setError(fault.message); }), WAIT_MS);
    return () => { stop.abort(); clearTimeout(timer); };
  }, [typed, tenant]);
  return html`<input class="first" type="search" aria-label="Search metrics" placeholder="Search metrics" value=${typed} onInput=${(/** @type {any} */ event) => patch({ search: event.target.value }, "replace")} />
    ${error && html`<div class="error" role="alert">${error}</div>`}
    <div class="explore">
      <div class="rows tall" tabindex="0" role="region" aria-label="Metrics"><table><tbody>${found?.values.map(name => html`<tr key=${name} class=${name === metric ? "costly" : ""}><td class="mono"><a href=${hrefOf("explore", { search: typed, metric: name })} data-page="explore" aria-current=${name === metric ? "true" : undefined}>${name}</a></td></tr>`)}</tbody></table>
      ${found && html`<p class="soft">${found.isIncomplete ? `The first ${LIMIT} names: type on to see others.` : `${count(found.values.length)} names`}</p>`}</div>
      ${metric && html`<${Metric} key=${metric} name=${metric} />`}
    </div>`;
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
    <${Use} name=${name} />
    <h3>Queries</h3><ul class="plain">${queriesOf(name, meta?.type ?? "").map(query => html`<li key=${query}><a class="mono" href=${hrefOf("query", { "g0.expr": query, "g0.tab": "graph" })} data-page="query">${query}</a></li>`)}</ul>
    <h3>Labels</h3>${labels.map(label => html`<${Label} key=${label} metric=${name} label=${label} />`)}</section>`;
}

/** Size of a metric, its newest sample, and when it was last asked for. @param {{ name: string }} props */
function Use({ name }) {
  const [use, setUse] = useState(/** @type {{ one: import("./usage.js").Metric | undefined, sinceMs: number } | null} */ (null));
  const [newest, setNewest] = useState(/** @type {number | null | undefined} */ (undefined));
  const utc = route.value.params.get("tz") === "utc";
  useEffect(() => {
    const stop = new AbortController();
    data("api/v1/status/metric_usage", { search: name, limit: String(LIMIT) }, stop.signal).then(found => setUse({ one: found.metrics.find((/** @type {any} */ one) => one.name === name), sinceMs: found.sinceMs }), () => { /* A server of another release does not count. */ });
    data("api/v1/query", { query: `max(timestamp({__name__=${JSON.stringify(name)}}))` }, stop.signal).then(found => setNewest(found.result[0] ? Number(found.result[0].value[1]) : null), () => {});
    return () => stop.abort();
  }, [name]);
  return html`<p>${newest !== undefined && html`<span>Newest sample: ${newest === null ? "none in the last 5 minutes" : timeText(Math.floor(newest), utc)}. </span>`}
    ${use?.one && html`<span>${count(use.one.series)} series, ${bytes(use.one.memoryBytes)} of memory${use.one.diskBytes == null ? "" : `, ${bytes(use.one.diskBytes)} on disk`}; ${count(use.one.queries)} queries, last asked: ${askedText(use.one.lastQueriedMs, use.sinceMs, utc)}. </span>`}
    <a href=${hrefOf("cardinality", { match: `{__name__=${JSON.stringify(name)}}` })} data-page="cardinality">Cardinality</a></p>`;
}

/** @param {{ metric: string, label: string }} props */
function Label({ metric, label }) {
  const [found, setFound] = useState(/** @type {{ values: string[], isIncomplete: boolean } | null} */ (null));
  const load = (/** @type {any} */ event) => { if (event.target.open && !found) labelValues(label, "", metric, AbortSignal.timeout(10_000)).then(setFound, () => setFound({ values: [], isIncomplete: false })); };
  const selector = (/** @type {string} */ value) => `{__name__=${JSON.stringify(metric)},${isPlain(label) ? label : JSON.stringify(label)}=${JSON.stringify(value)}}`;
  return html`<details onToggle=${load}><summary class="mono">${label}</summary><ul class="plain">${found?.values.map(value => html`<li key=${value}><a class="mono" href=${hrefOf("query", { "g0.expr": selector(value), "g0.tab": "table" })} data-page="query">${value}</a></li>`)}</ul>
    ${found?.isIncomplete && html`<p class="soft">The first ${LIMIT} values.</p>`}</details>`;
}
