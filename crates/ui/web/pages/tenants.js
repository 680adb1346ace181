// Tenants: what each one wrote and asked, and its use of each limit.
// Not here: which samples were refused (rejects.js).
import { html } from "../lib/ui.js";
import { bytes, count } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf, route } from "../route.js";
import { Bar, Choice, hasWords, heads, NEAR, Search } from "../widgets.js";

const REFRESH_MS = 10_000;
const LIMIT = 1000;
/** Limits of which less is used are folded. */
const SHARE_MIN = 0.01;
/** @typedef {{ name: string, setting: string | null, used: number, limit: number | null }} Limit */
/** @typedef {{ tenant: string, samplesAccepted: number, samplesRejected: number, queries: number, memoryBytes: number, limits: Limit[] }} Tenant */

/** Part of the limit that is used; 0 without a limit. @param {Limit} limit */
const share = ({ used, limit }) => (limit ? used / limit : 0);

export function Page() {
  const { params } = route.value, filter = params.get("search") ?? "";
  const { value, error } = usePolled(`api/v1/status/tenants?limit=${LIMIT}&sort=${params.get("sort") ?? "series"}`, REFRESH_MS);
  /** @type {Tenant[]} */
  const found = (value?.tenants ?? []).filter((/** @type {Tenant} */ one) => hasWords(one.tenant, filter));
  const near = found.filter(one => one.limits.some(limit => share(limit) > NEAR)).length;
  return html`<section class="panel"><h1>Tenants</h1><${Fault} error=${error} />
    ${value && html`<${Facts} facts=${[[count(value.total), "tenants"], [count(found.length), "shown"], [count(near), "use more than 90 % of a limit"]]} />
      ${value.overflow && html`<p class="note">There are more tenants than counters: some share the counters of the tenant <code>__overflow__</code>.</p>`}
      <div class="bar"><${Search} name="search" label="Filter tenants" /><${Choice} name="sort" label="Order" choices=${[["series", "series"], ["memory", "memory"], ["rejected", "samples rejected"], ["queries", "queries"]]} /></div>
      ${found.length > 0 ? html`<${List} tenants=${found} />` : html`<p class="empty">No tenant has this text in its name.</p>`}`}</section>`;
}

/** @param {{ tenants: Tenant[] }} props */
const List = ({ tenants }) => html`<div class="rows tall" tabindex="0" role="region" aria-label="Tenants"><table class="tops"><thead>${heads(["tenant", "#accepted", "#rejected", "#queries", "#memory", "use of limits"])}</thead>
  <tbody>${tenants.map(one => html`<tr key=${one.tenant}><td class="mono" title=${one.tenant}>${one.tenant}</td>
    <td class="value">${count(one.samplesAccepted)}</td><td class="value">${one.samplesRejected ? html`<a href=${hrefOf("rejects", { tenant: one.tenant })} data-page="rejects">${count(one.samplesRejected)}</a>` : "0"}</td>
    <td class="value">${count(one.queries)}</td><td class="value">${bytes(one.memoryBytes)}</td>
    <td><${Limits} limits=${one.limits} /></td></tr>`)}</tbody></table></div>`;

/** The most used limits with bars; the others on request. @param {{ limits: Limit[] }} props */
function Limits({ limits }) {
  const sorted = [...limits].sort((a, b) => share(b) - share(a)), used = sorted.filter(limit => share(limit) >= SHARE_MIN), others = sorted.slice(used.length);
  const list = (/** @type {Limit[]} */ some) => html`<div class="limits">${some.map(limit => html`<${Use} key=${limit.name} limit=${limit} />`)}</div>`;
  return html`${used.length > 0 && list(used)}${others.length > 0 && html`<details class="others"><summary>${count(others.length)} below 1 % or without limit</summary>${list(others)}</details>`}`;
}

/** @param {{ limit: Limit }} props */
const Use = ({ limit }) => {
  const isUsed = share(limit) >= SHARE_MIN;
  const show = /byte|memory/.test(limit.name) ? bytes : count;
  return html`<span class="limit" title=${limit.setting ? `setting ${limit.setting}` : ""}><span>${limit.name.replaceAll("_", " ")}</span>${isUsed ? html`<${Bar} part=${limit.used} of=${limit.limit} isLimit />` : ""}
    <span class="value">${show(limit.used)} ${limit.limit ? `of ${show(limit.limit)}, ${(100 * share(limit)).toFixed(share(limit) < 0.1 ? 1 : 0)} %` : "without limit"}</span></span>`;
};
