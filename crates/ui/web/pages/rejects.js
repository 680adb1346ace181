// Rejects: refused samples by reason and tenant over the last hour, the newest examples, and what to do.
import { html, useState } from "../lib/ui.js";
import { count, rangeText, timeText } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf, route } from "../route.js";
import { Choice, hasWords, heads, Long, Search, Spark } from "../widgets.js";

const REFRESH_MS = 10_000;
const LIMIT = 100;
const MINUTE_MS = 60_000;
/** @typedef {{ tenant: string, reason: string, total: number, perMinute: number[] }} Count */
/** @typedef {{ tenant: string, reason: string, series: string, timeMs: number | null, seenMs: number, sender: string, count: number, setting: string | null, advice: string }} Example */

const words = (/** @type {string} */ reason) => reason.replaceAll("_", " ");
/** @param {number | null} ms @param {boolean} utc */
const timeOf = (ms, utc) => (ms == null ? "–" : timeText(Math.floor(ms / 1000), utc));

export function Page() {
  const { params } = route.value, filter = params.get("search") ?? "", reason = params.get("reason") ?? "", utc = params.get("tz") === "utc";
  const { value, error } = usePolled(`api/v1/status/rejects?limit=${LIMIT}`, REFRESH_MS);
  const fits = (/** @type {Count | Example} */ one) => (!reason || one.reason === reason) && hasWords(`${one.tenant} ${one.reason} ${"series" in one ? `${one.series} ${one.sender}` : ""}`, filter);
  /** @type {Count[]} */
  const all = value?.counts ?? [], counts = all.filter(fits);
  /** @type {Example[]} */
  const examples = (value?.examples ?? []).filter(fits);
  const reasons = [...new Set(all.map(one => one.reason))].sort();
  return html`<section class="panel"><h1>Rejected samples</h1><${Fault} error=${error} />
    ${value && html`<${Facts} facts=${[[count(sum(counts.map(one => one.total))), `in ${value.minutes} minutes`], [count(new Set(counts.map(one => one.tenant)).size), "tenants"]]} />
      <div class="bar"><${Search} name="search" label="Filter rejects" /><${Choice} name="reason" label="Reason" choices=${[["", "all"], ...reasons.map(one => [one, words(one)])]} /></div>
      ${!all.length && html`<p class="empty">No sample was rejected.</p>`}
      ${counts.length > 0 && html`<${Counts} counts=${counts} endMs=${value.endMs} utc=${utc} />`}
      ${examples.length > 0 && html`<${Examples} examples=${examples} utc=${utc} />`}`}</section>`;
}

/** @param {number[]} values */
const sum = values => values.reduce((all, value) => all + value, 0);

/** @param {{ counts: Count[], endMs: number, utc: boolean }} props */
function Counts({ counts, endMs, utc }) {
  const [open, setOpen] = useState("");
  const most = Math.max(...counts.flatMap(one => one.perMinute), 1), minutes = Math.max(...counts.map(one => one.perMinute.length));
  const chosen = counts.find(one => `${one.tenant}\n${one.reason}` === open);
  return html`<h2>By reason and tenant, ${rangeText(minutes * 60)} until ${timeOf(endMs, utc)}</h2>
    <div class="rows" tabindex="0" role="region" aria-label="Rejects by reason"><table><thead><tr><th>reason</th><th>tenant</th><th>per minute, at most ${count(most)}</th><th class="right">in the hour</th><th>minutes</th></tr></thead>
      <tbody>${counts.map(one => { const key = `${one.tenant}\n${one.reason}`; return html`<tr key=${key}><td>${words(one.reason)}</td><td class="mono">${one.tenant}</td>
        <td><${Spark} counts=${one.perMinute} most=${most} label=${`Rejects per minute of ${one.tenant}: ${words(one.reason)}`} /></td><td class="value">${count(one.total)}</td>
        <td><button class="quiet" aria-expanded=${open === key} aria-label=${`Minutes of ${words(one.reason)}, ${one.tenant}`} onClick=${() => setOpen(open === key ? "" : key)}>${open === key ? "Hide" : "Show"}</button></td></tr>`; })}</tbody></table></div>
    ${chosen && html`<h3>${words(chosen.reason)}, ${chosen.tenant}</h3><div class="rows" tabindex="0" role="region" aria-label="Rejects per minute"><table><tbody>
      ${chosen.perMinute.map((value, idx) => ({ value, ms: endMs - (chosen.perMinute.length - idx) * MINUTE_MS })).filter(({ value }) => value).map(({ value, ms }) => html`<tr key=${ms}><td>${timeOf(ms, utc)}</td><td class="value">${count(value)}</td></tr>`)}</tbody></table></div>`}`;
}

/** @param {{ examples: Example[], utc: boolean }} props */
const Examples = ({ examples, utc }) => html`<h2>Newest examples</h2><div class="rows tall" tabindex="0" role="region" aria-label="Rejected series"><table class="tops"><thead>${heads(["seen", "reason", "what to do", "series", "time of the sample", "#times", "sender", "tenant"])}</thead>
  <tbody>${examples.map((one, idx) => html`<tr key=${idx}><td class="wrapped">${timeOf(one.seenMs, utc)}</td><td class="wrapped">${words(one.reason)}</td>
    <td class="prose">${one.advice}${one.setting && html` <a class="mono" href=${hrefOf("settings", { search: one.setting })} data-page="settings">${one.setting}</a>`}</td>
    <td class="mono prose"><${Long} key=${one.series} text=${one.series} href=${one.series.startsWith("{") ? hrefOf("query", { "g0.expr": one.series, "g0.tab": "table" }) : undefined} /></td>
    <td class="wrapped">${timeOf(one.timeMs, utc)}</td><td class="value">${count(one.count)}</td><td class="prose narrow"><${Long} key=${one.sender} text=${one.sender} isNarrow /></td><td class="mono prose narrow"><${Long} key=${one.tenant} text=${one.tenant} isNarrow /></td></tr>`)}</tbody></table></div>`;
