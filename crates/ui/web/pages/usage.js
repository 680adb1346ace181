// Metrics by size and by use: what is expensive and never asked for is first in one order.
import { html } from "../lib/ui.js";
import { bytes, count, timeText } from "../format.js";
import { Fault, usePolled } from "../polled.js";
import { hrefOf, route } from "../route.js";
import { Choice, heads, Search } from "../widgets.js";

const LIMIT = 100;
const ORDERS = /** @type {[string, string][]} */ ([["series", "series"], ["unused", "expensive and never asked"], ["memory", "memory"], ["disk", "disk"], ["queries", "queries"], ["last_queried", "last asked"]]);
/** @typedef {{ name: string, series: number, memoryBytes: number, diskBytes: number | null, queries: number, lastQueriedMs: number | null }} Metric */

/** @param {number | null} ms @param {number} sinceMs @param {boolean} utc */
export const askedText = (ms, sinceMs, utc) => (ms == null ? `not since ${timeText(Math.floor(sinceMs / 1000), utc)}` : timeText(Math.floor(ms / 1000), utc));

export function Usage() {
  const { params } = route.value, utc = params.get("tz") === "utc", search = params.get("usage_search") ?? "";
  const { value, error } = usePolled(`api/v1/status/metric_usage?${new URLSearchParams({ limit: String(LIMIT), sort: params.get("sort") ?? "series", ...(search && { search }) })}`, 0);
  return html`<section class="panel"><h2>Metrics by size and use</h2><${Fault} error=${error} />
    ${value && html`<div class="bar"><${Search} name="usage_search" label="Filter by name" /><${Choice} name="sort" label="Order" choices=${ORDERS} />
      <span class="soft">${count(value.metrics.length)} of ${count(value.total)} metrics; queries are counted since ${timeText(Math.floor(value.sinceMs / 1000), utc)}.${value.truncated ? " There are more metrics than the server counts queries of." : ""}</span></div>
    <div class="rows tall" tabindex="0" role="region" aria-label="Metrics by size and use"><table><thead>${heads(["metric", "#series", "#memory", "#disk", "#queries", "last asked"])}</thead>
      <tbody>${value.metrics.map((/** @type {Metric} */ one) => html`<tr key=${one.name} class=${one.queries ? "" : "unused"}><td class="mono" title=${one.name}><a href=${hrefOf("explore", { metric: one.name, search: one.name })} data-page="explore">${one.name}</a></td>
        <td class="value">${count(one.series)}</td><td class="value">${bytes(one.memoryBytes)}</td><td class="value">${bytes(one.diskBytes)}</td><td class="value">${count(one.queries)}</td><td>${one.lastQueriedMs == null ? html`<span class="tag">never</span>` : askedText(one.lastQueriedMs, value.sinceMs, utc)}</td></tr>`)}</tbody></table></div>`}</section>`;
}
