// Plan page: a plan that is pasted from the slow query log or an answer with `explain=1`.
import { html, useMemo, useState } from "../lib/ui.js";
import { hrefOf } from "../route.js";
import { pasted } from "../plan/nodes.js";
import { Plan } from "../plan/tree.js";

export function Page() {
  const [text, setText] = useState("");
  const found = useMemo(() => pasted(text), [text]);
  return html`<section class="panel"><h1>Plan of a query</h1>
    <p class="soft">Paste a line of the slow query log (<code>--query.log-slow</code>), or an answer with <code>explain=1</code>. The tab <a href=${hrefOf("query")} data-page="query">Plan</a> of the query page runs a query and shows its plan.</p>
    <textarea class="paste mono" aria-label="Line of the slow query log" rows="4" spellcheck=${false} value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)}></textarea>
    ${text.trim() && !found && html`<div class="error" role="alert">There is no plan in this text: it has to be JSON with <code>plan</code>, <code>explain</code> or the plan itself.</div>`}
    ${found?.query && html`<p class="mono">${found.query}</p>`}
    ${found && html`<${Plan} plan=${found.plan} />`}</section>`;
}
