// Cardinality of the head: metrics, labels and pairs with the most series.
import { html } from "../lib/ui.js";
import { bytes, count, isPlain } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { hrefOf } from "../route.js";

const LIMIT = 50;

/** @param {{ title: string, list: { name: string, value: number }[], text: (value: number) => string, query?: (name: string) => string }} props */
function Top({ title, list, text, query }) {
  const most = list[0]?.value || 1;
  return html`<section><h2>${title}</h2><div class="rows" tabindex="0" role="region" aria-label=${title}><table><tbody>${list.map(({ name, value }) => html`<tr key=${name}>
    <td class="mono" title=${name}>${query ? html`<a href=${hrefOf("query", { "g0.expr": query(name), "g0.tab": "table" })} data-page="query">${name}</a>` : name}</td>
    <td><span class="bars" aria-hidden="true"><i class="own" style=${{ width: `${(100 * value) / most}%` }}></i></span></td><td class="value">${text(value)}</td></tr>`)}</tbody></table></div></section>`;
}

/** @param {string} name */
const selector = name => (isPlain(name) ? name : `{${JSON.stringify(name)}}`);
/** @param {string} pair */
function pairSelector(pair) {
  const at = pair.indexOf("="), label = pair.slice(0, at);
  return `{${/^[a-zA-Z_]\w*$/.test(label) ? label : JSON.stringify(label)}=${JSON.stringify(pair.slice(at + 1))}}`;
}

export function Page() {
  const { value, error } = usePolled(`api/v1/status/tsdb?limit=${LIMIT}`, 0);
  return html`<section class="panel"><h1>Cardinality of the head</h1><${Fault} error=${error} />
    ${value && html`<${Facts} facts=${[[count(value.headStats.numSeries), "series"], [count(value.headStats.numLabelPairs), "label pairs"], [count(value.headStats.chunkCount), "chunks"]]} />
    <div class="pair">
      <${Top} title="Series by metric" list=${value.seriesCountByMetricName} text=${count} query=${selector} />
      <${Top} title="Series by label pair" list=${value.seriesCountByLabelValuePair} text=${count} query=${(/** @type {string} */ pair) => `count by (__name__) (${pairSelector(pair)})`} />
      <${Top} title="Values by label" list=${value.labelValueCountByLabelName} text=${count} query=${(/** @type {string} */ label) => `topk(100, count by (${isPlain(label) ? label : JSON.stringify(label)}) ({${isPlain(label) ? label : JSON.stringify(label)}!=""}))`} />
      <${Top} title="Memory by label" list=${value.memoryInBytesByLabelName} text=${bytes} />
    </div>`}</section>`;
}
