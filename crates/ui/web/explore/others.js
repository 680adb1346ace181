// Explore beside PromQL's metrics: databases, measurements and fields of InfluxQL, paths of Graphite.
// Never whole lists: the server is asked for what is typed, 100 entries at most.
import { html, useEffect, useState } from "../lib/ui.js";
import { get, post } from "../api.js";
import { hrefOf, patch, route } from "../route.js";
import { Fault } from "../polled.js";
import { Search } from "../widgets.js";

const LIMIT = 100;
const WAIT_MS = 150;

/** Fetches by what is typed; an older request is cancelled. @template T @param {(signal: AbortSignal) => Promise<T>} ask @param {unknown[]} inputs @returns {{ value: T | null, error: any }} */
function useAsked(ask, inputs) {
  const [state, setState] = useState(/** @type {{ value: T | null, error: any }} */ ({ value: null, error: null }));
  useEffect(() => {
    const stop = new AbortController();
    const timer = setTimeout(() => ask(stop.signal).then(value => setState({ value, error: null }), error => { if (!stop.signal.aborted) setState({ value: null, error }); }), WAIT_MS);
    return () => { stop.abort(); clearTimeout(timer); };
  }, inputs);
  return state;
}

const identifier = (/** @type {string} */ name) => `"${name.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
/** A regular expression of InfluxQL that matches names with a text. @param {string} text */
const containing = text => `/(?i)${text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&")}/`;

/** First columns of all rows of a statement. @param {string} q @param {string} db @param {AbortSignal} signal @returns {Promise<string[][]>} */
async function rows(q, db, signal) {
  const json = await post("query", { q, db }, signal);
  return json.results.flatMap((/** @type {any} */ result) => (result.series ?? []).flatMap((/** @type {any} */ table) => table.values ?? []));
}

/** @param {{ title: string, names: string[], href: (name: string) => string, page: string, chosen?: string }} props */
const Names = ({ title, names, href, page, chosen }) => html`<section><h2>${title}</h2><div class="rows" tabindex="0" role="region" aria-label=${title}><table><tbody>
  ${names.map(name => html`<tr key=${name} class=${name === chosen ? "costly" : ""}><td class="mono"><a href=${href(name)} data-page=${page} aria-current=${name === chosen ? "true" : undefined}>${name}</a></td></tr>`)}</tbody></table></div>
  <p class="soft">${names.length >= LIMIT ? `The first ${LIMIT}: type on to see others.` : `${names.length} names`}</p></section>`;

export function Databases() {
  const { params } = route.value, db = params.get("db") ?? "", measurement = params.get("measurement") ?? "", typed = params.get("search") ?? "", tenant = params.get("tenant");
  const databases = useAsked(signal => rows("SHOW DATABASES", "", signal), [tenant]);
  const measurements = useAsked(async signal => (db ? rows(`SHOW MEASUREMENTS ON ${identifier(db)}${typed ? ` WITH MEASUREMENT =~ ${containing(typed)}` : ""} LIMIT ${LIMIT}`, db, signal) : []), [db, typed, tenant]);
  const keys = useAsked(async signal => (db && measurement ? Promise.all([rows(`SHOW FIELD KEYS ON ${identifier(db)} FROM ${identifier(measurement)}`, db, signal), rows(`SHOW TAG KEYS ON ${identifier(db)} FROM ${identifier(measurement)}`, db, signal)]) : null), [db, measurement, tenant]);
  const query = (/** @type {string} */ field) => hrefOf("query", { "g0.lang": "influxql", "g0.db": db, "g0.tab": "graph", "g0.expr": `SELECT mean(${identifier(field)}) FROM ${identifier(measurement)} WHERE $timeFilter GROUP BY time($__interval) fill(none)` });
  const first = (/** @type {string[][] | null} */ list) => (list ?? []).slice(0, LIMIT).map(row => row[0] ?? "");
  return html`<${Fault} error=${databases.error ?? measurements.error ?? keys.error} />
    ${databases.value && !databases.value.length && html`<p class="empty">No database: line protocol has written nothing.</p>`}
    <div class="explore three"><${Names} title="Databases" names=${first(databases.value)} chosen=${db} page="explore" href=${(/** @type {string} */ name) => hrefOf("explore", { kind: "influxql", db: name })} />
      ${db && html`<div><${Search} name="search" label="Search measurements" /><${Names} title=${`Measurements of ${db}`} names=${first(measurements.value)} chosen=${measurement} page="explore" href=${(/** @type {string} */ name) => hrefOf("explore", { kind: "influxql", db, search: typed, measurement: name })} /></div>`}
      ${keys.value && html`<section aria-label="Fields and tags"><h2>Fields</h2><ul class="plain">${keys.value[0]?.map(([field = "", type]) => html`<li key=${field}><a class="mono" href=${query(field)} data-page="query">${field}</a> <span class="soft">${type}</span></li>`)}</ul>
        <h2>Tags</h2><ul class="plain">${keys.value[1]?.map(([tag]) => html`<li key=${tag} class="mono">${tag}</li>`)}</ul></section>`}</div>`;
}

export function Paths() {
  const { params } = route.value, path = params.get("path") ?? "", tenant = params.get("tenant");
  const found = useAsked(signal => get("metrics/find", { query: `${path ? `${path}.` : ""}*`, format: "json", limit: String(LIMIT) }, signal), [path, tenant]);
  const parts = path ? path.split(".") : [];
  const list = /** @type {any[]} */ (found.value ?? []).slice(0, LIMIT);
  return html`<${Fault} error=${found.error} />
    <nav class="crumbs" aria-label="Path"><a href=${hrefOf("explore", { kind: "graphite" })} data-page="explore">all paths</a>${parts.map((part, idx) => html` . <a key=${idx} href=${hrefOf("explore", { kind: "graphite", path: parts.slice(0, idx + 1).join(".") })} data-page="explore">${part}</a>`)}</nav>
    ${found.value && !list.length && html`<p class="empty">No path: carbon has written nothing here.</p>`}
    ${list.length > 0 && html`<div class="rows tall" tabindex="0" role="region" aria-label="Paths"><table><tbody>${list.map(({ id, text, leaf }) => html`<tr key=${id + leaf}><td class="mono">${leaf ? html`<a href=${hrefOf("query", { "g0.lang": "graphite", "g0.expr": id })} data-page="query">${text}</a>` : html`<a href=${hrefOf("explore", { kind: "graphite", path: id })} data-page="explore">${text}.</a>`}</td><td class="soft">${leaf ? "series" : ""}</td></tr>`)}</tbody></table></div>
    ${found.value.length > LIMIT && html`<p class="soft">The first ${LIMIT}.</p>`}`}`;
}

/** Kinds of names: of metrics, of InfluxQL, of Graphite. @param {{ kind: string }} props */
export const Kinds = ({ kind }) => html`<div class="switch" role="group" aria-label="Kind of names">${[["", "Metrics"], ["influxql", "Databases"], ["graphite", "Paths"]].map(([name = "", title]) => html`<button key=${name} aria-pressed=${kind === name} onClick=${() => patch({ kind: name, search: undefined, metric: undefined, db: undefined, measurement: undefined, path: undefined })}>${title}</button>`)}</div>`;
