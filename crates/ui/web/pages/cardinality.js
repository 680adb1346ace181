// Cardinality: metrics, labels and pairs with the most series, of the head or of head and blocks within a range; a
// row drills down to its series. Metrics by size and use are in a list of their own (usage.js).
import { html } from "../lib/ui.js";
import { bytes, count, isPlain, rangeSeconds } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf, patch, route } from "../route.js";
import { Bar, Choice } from "../widgets.js";
import { Usage } from "./usage.js";

const LIMIT = 100;
const DAY_MS = 86_400_000;
/** Times are rounded to a minute, so that an address that is opened again asks the same. */
const ROUND_MS = 60_000;
/** @typedef {{ name: string, value: number }[]} List */

/** Request for the series of a selector within a range that ends `before` days ago. @param {string} match @param {string} span @param {number} [before] */
function pathOf(match, span, before = 0) {
  const params = new URLSearchParams({ limit: String(LIMIT) });
  if (match) params.append("match[]", match);
  if (span) {
    const end = Math.floor(Date.now() / ROUND_MS) * ROUND_MS - before * DAY_MS;
    params.set("start", String((end - 1000 * rangeSeconds(span)) / 1000));
    params.set("end", String(end / 1000));
  }
  return `api/v1/status/tsdb?${params}`;
}

/** A matcher of a label's value, or of any value. @param {string} label @param {string} [value] */
const matcher = (label, value) => `${isPlain(label) && !label.includes(":") ? label : JSON.stringify(label)}${value === undefined ? '!=""' : `=${JSON.stringify(value)}`}`;

/** A selector of the series of `match` that fit one more matcher. @param {string} match @param {string} added */
export function narrowed(match, added) {
  const inner = /^\s*\{(.*)\}\s*$/s.exec(match)?.[1]?.trim() ?? (match.trim() ? matcher("__name__", match.trim()) : "");
  return inner.split(",").includes(added) ? match : `{${inner ? `${inner.replace(/,$/, "")},` : ""}${added}}`;
}

/** @param {string} pair */
function pairMatcher(pair) {
  const at = pair.indexOf("=");
  return matcher(pair.slice(0, at), pair.slice(at + 1));
}

/** @param {{ title: string, list: List, before: List | undefined, text: (value: number) => string, added?: (name: string) => string }} props */
function Top({ title, list, before, text, added }) {
  const most = list[0]?.value || 1, { params } = route.value, match = params.get("match") ?? "";
  const earlier = before && new Map(before.map(({ name, value }) => [name, value]));
  const link = (/** @type {string} */ name) => hrefOf("cardinality", { match: narrowed(match, added?.(name) ?? ""), span: params.get("span") ?? undefined, against: params.get("against") ?? undefined });
  return html`<section><h2>${title}</h2><div class="rows" tabindex="0" role="region" aria-label=${title}><table><tbody>${list.map(({ name, value }) => html`<tr key=${name}>
    <td class="mono" title=${name}>${added ? html`<a href=${link(name)} data-page="cardinality">${name}</a>` : name}</td>
    <td><${Bar} part=${value} of=${most} /></td><td class="value">${text(value)}</td>${earlier && html`<td class="value">${difference(value, earlier.get(name), text)}</td>`}</tr>`)}</tbody></table></div></section>`;
}

/** @param {number} value @param {number | undefined} before @param {(value: number) => string} text */
const difference = (value, before, text) => (before === undefined ? "new in this list" : value === before ? "=" : `${value > before ? "+" : "−"}${text(Math.abs(value - before))}`);

export function Page() {
  const { params } = route.value, match = params.get("match") ?? "", span = params.get("span") ?? "", against = span ? Number(params.get("against")) || 0 : 0;
  const { value, error } = usePolled(pathOf(match, span), 0), before = usePolled(against ? pathOf(match, span, against) : "", 0);
  const take = (/** @type {any} */ event) => patch({ match: event.target.value.trim() });
  const list = (/** @type {string} */ name) => (against && before.value ? before.value[name] : undefined);
  return html`<section class="panel"><h1>${span || match ? "Cardinality of head and blocks" : "Cardinality of the head"}</h1>
    <div class="bar"><label class="grow">Series <input class="selector mono" value=${match} placeholder=${'{job="api"}'} spellcheck=${false} autocapitalize="off" onChange=${take} /></label>
      <${Choice} name="span" label="Within" choices=${[["", match ? "all times" : "the head"], ["1h", "1 hour"], ["1d", "1 day"], ["7d", "7 days"], ["30d", "30 days"]]} />
      ${span && html`<${Choice} name="against" label="Compare with" choices=${[["", "nothing"], ["1", "a day before"], ["7", "a week before"]]} />`}
      ${match && html`<button onClick=${() => patch({ match: undefined })}>All series</button><a href=${hrefOf("query", { "g0.expr": match, "g0.tab": "table" })} data-page="query">Query these series</a>`}</div>
    <${Fault} error=${error ?? (against ? before.error : null)} />
    ${value && html`<${Facts} facts=${[[count(value.headStats.numSeries), "series"], [count(value.headStats.numLabelPairs), "label pairs"], [count(value.headStats.chunkCount), "chunks"]]} />
    <div class="pair">
      <${Top} title="Series by metric" list=${value.seriesCountByMetricName} before=${list("seriesCountByMetricName")} text=${count} added=${(/** @type {string} */ name) => matcher("__name__", name)} />
      <${Top} title="Series by label pair" list=${value.seriesCountByLabelValuePair} before=${list("seriesCountByLabelValuePair")} text=${count} added=${pairMatcher} />
      <${Top} title="Values by label" list=${value.labelValueCountByLabelName} before=${list("labelValueCountByLabelName")} text=${count} added=${(/** @type {string} */ label) => matcher(label)} />
      <${Top} title="Memory by label" list=${value.memoryInBytesByLabelName} before=${list("memoryInBytesByLabelName")} text=${bytes} />
    </div>`}</section><${Usage} />`;
}
