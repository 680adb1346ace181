// Queries at work: what runs, how long, with how much memory; one can be ended.
import { html, useState } from "../lib/ui.js";
import { post } from "../api.js";
import { bytes, count, duration } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf } from "../route.js";

const REFRESH_MS = 2000;

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
      ${value.queries.length > 0 && html`<div class="rows" tabindex="0" role="region" aria-label="Running queries"><table><thead><tr><th>query</th><th>tenant</th><th>age</th><th>series</th><th>samples</th><th>memory</th><th>peak</th><td></td></tr></thead>
        <tbody>${value.queries.map((/** @type {any} */ found) => html`<tr key=${found.id}><td class="mono" title=${found.query}><a href=${hrefOf("query", { "g0.expr": found.query })} data-page="query">${found.query.slice(0, 200)}</a></td><td>${found.tenant}</td>
          <td class="value">${duration(found.ageMs)}</td><td class="value">${count(found.series)}</td><td class="value">${count(found.samples)}</td><td class="value">${bytes(found.memoryBytes)}</td><td class="value">${bytes(found.memoryPeakBytes)}</td>
          <td><button onClick=${() => kill(found.id)} aria-label=${`End query ${found.id}`}>End</button></td></tr>`)}</tbody></table></div>`}
      ${!value.queries.length && html`<p class="empty">No query is running.</p>`}`}</section>`;
}
