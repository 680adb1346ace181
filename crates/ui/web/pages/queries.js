// Queries at work, one of which can be ended; and the slowest queries of the last hour.
import { html, useState } from "../lib/ui.js";
import { post } from "../api.js";
import { bytes, count, duration, timeText } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf, route } from "../route.js";
import { Bar, Choice, heads, Long } from "../widgets.js";

const REFRESH_MS = 2000;
const TOP_REFRESH_MS = 10_000;
const TOP_LIMIT = 50;

export function Page() {
  const [kills, setKills] = useState(0);
  const [note, setNote] = useState("");
  const { value, error } = usePolled("api/v1/status/active_queries", REFRESH_MS, kills);
  const kill = async (/** @type {number} */ id) => {
    try { await post("api/v1/status/active_queries/kill", { id: String(id) }); setNote(`query ${id} was ended`); } catch (found) { setNote(/** @type {Error} */ (found).message); }
    setKills(now => now + 1);
  };
  return html`<section class="panel"><h1>Running queries</h1><${Fault} error=${error} />
    ${value && html`<${Facts} facts=${[[count(value.queries.length), "running"], [count(value.waiting), "waiting for a permit"], [count(value.killed), "ended by hand"]]} />
      <p class="soft" role="status">${note}</p>
      ${value.queries.length > 0 && html`<div class="rows" tabindex="0" role="region" aria-label="Running queries"><table class="tops"><thead>${heads(["query", "tenant", "#age", "#series", "#samples", "#memory", "#peak", ""])}</thead>
        <tbody>${value.queries.map((/** @type {any} */ found) => html`<tr key=${found.id}><td class="mono prose"><${Long} key=${found.query} text=${found.query} href=${hrefOf("query", { "g0.expr": found.query })} /></td><td class="prose narrow"><${Long} text=${found.tenant} isNarrow /></td>
          <td class="value">${duration(found.ageMs)}</td><td class="value">${count(found.series)}</td><td class="value">${count(found.samples)}</td><td class="value">${bytes(found.memoryBytes)}</td><td class="value">${bytes(found.memoryPeakBytes)}</td>
          <td><button onClick=${() => kill(found.id)} aria-label=${`End query ${found.id}`}>End</button></td></tr>`)}</tbody></table></div>`}
      ${!value.queries.length && html`<p class="empty">No query is running.</p>`}`}</section><${Slowest} />`;
}

/** Texts of the last hour that took most, together. */
function Slowest() {
  const { params } = route.value, utc = params.get("tz") === "utc", sort = params.get("sort") ?? "seconds";
  const { value, error } = usePolled(`api/v1/status/top_queries?limit=${TOP_LIMIT}&sort=${sort}`, TOP_REFRESH_MS);
  const by = (/** @type {any} */ one) => one[sort] ?? one.seconds, most = by(value?.queries[0] ?? { seconds: 1 });
  return html`<section class="panel"><h2>Slowest queries${value ? ` of the last ${value.minutes} minutes` : ""}</h2><${Fault} error=${error} />
    ${value && html`<div class="bar"><${Choice} name="sort" label="Order" choices=${[["seconds", "time"], ["count", "count"], ["samples", "samples"]]} />
      ${value.dropped > 0 && html`<span class="soft">${count(value.dropped)} texts were left out: there were more than the server keeps.</span>`}</div>
    ${value.queries.length ? html`<div class="rows tall" tabindex="0" role="region" aria-label="Slowest queries"><table class="tops"><thead>${heads(["query", "relative", "tenant", "#count", "#failed", "#time", "#mean", "#longest", "#samples", "last"])}</thead>
      <tbody>${value.queries.map((/** @type {any} */ one, /** @type {number} */ idx) => html`<tr key=${idx}><td class="mono prose"><${Long} key=${one.query} text=${one.query} href=${hrefOf("query", { "g0.expr": one.query, "g0.lang": one.language === "promql" ? undefined : one.language })} /></td>
        <td><${Bar} part=${by(one)} of=${most} /></td><td class="prose narrow"><${Long} text=${one.tenant} isNarrow /></td><td class="value">${count(one.count)}</td><td class="value">${count(one.errors)}</td><td class="value">${duration(1000 * one.seconds)}</td>
        <td class="value">${duration((1000 * one.seconds) / (one.count || 1))}</td><td class="value">${duration(1000 * one.maxSeconds)}</td><td class="value">${count(one.samples)}</td><td class="wrapped">${timeText(Math.floor(one.lastMs / 1000), utc)}</td></tr>`)}</tbody></table></div>` : html`<p class="empty">No query in this time.</p>`}`}</section>`;
}
