// Details of a rule: error, query with its links, times, labels, annotations, and its plot on request.
import { html } from "../lib/ui.js";
import { count, duration, rangeText, timeText } from "../format.js";
import { Code } from "../query/grammar.js";
import { panelParams } from "../query/panel.js";
import { hrefOf } from "../route.js";
import { matcherText } from "./filter.js";
import { Ago, Annotations, Chips } from "./parts.js";
import { Plot } from "./plot.js";

/** @typedef {import("./model.js").Rule} Rule */

/** Address of the query page with a query. @param {string} expr */
export const queryHref = expr => hrefOf("query", { "g0.expr": expr });

/** Address of the plan of one evaluation of a rule, at the time of its last one. @param {Rule} rule */
export const planHref = ({ query, evaluatedMs }) => hrefOf("query", panelParams(0, { expr: query, tab: "plan", range: 1, end: evaluatedMs === null ? 0 : Math.floor(evaluatedMs / 1000) }));

/** Address of the rules of a group with the name of a rule. @param {Rule} rule */
export const ruleHref = ({ isAlerting, name, group }) => hrefOf("rules", { search: `${matcherText(isAlerting ? "alertname" : "__name__", name)} ${matcherText("group", group.name)}` });

/** @param {{ rule: Rule, open: import("./parts.js").Open, now: number, utc: boolean, isOnAlerts?: boolean }} props */
export function Detail({ rule, open, now, utc, isOnAlerts }) {
  const plotKey = `plot\n${rule.key}`, isPlotted = open.has(plotKey);
  const { group } = rule, share = group.intervalMs ? (100 * rule.tookMs) / group.intervalMs : 0;
  const facts = [
    rule.forMs > 0 && ["for", rangeText(rule.forMs / 1000)], rule.keepMs > 0 && ["keep firing for", rangeText(rule.keepMs / 1000)], rule.samples !== null && ["samples", count(rule.samples)],
    ["last evaluation", html`<${Ago} ms=${rule.evaluatedMs} now=${now} utc=${utc} none="none yet" />`], ["duration", `${duration(rule.tookMs)}${share >= 0.1 ? `, ${share.toFixed(1)} % of the interval` : ""}`],
    ["group", isOnAlerts ? html`<a href=${ruleHref(rule)} data-page="rules">${group.name}</a>` : group.name], ["file", html`<span class="mono">${group.file}</span>`],
  ].filter(fact => Array.isArray(fact));
  return html`<div class="detail">
    ${rule.error && html`<div class="error">${rule.error}</div>`}
    <a class="query" href=${queryHref(rule.query)} data-page="query" title="Open in the query page"><${Code} text=${rule.query} /></a>
    <div class="bar"><button aria-expanded=${isPlotted} onClick=${() => open.toggle(plotKey)}>${isPlotted ? "Hide plot" : "Plot"}</button>
      <a href=${planHref(rule)} data-page="query" title=${`Plan of this query${rule.evaluatedMs === null ? "" : ` at ${timeText(Math.floor(rule.evaluatedMs / 1000), utc)}`}`}>Plan</a>
      ${rule.isAlerting && !isOnAlerts && html`<a href=${hrefOf("alerts", { search: `${matcherText("alertname", rule.name)} ${matcherText("group", group.name)}` })} data-page="alerts">${count(rule.alerts.length)} ${rule.alerts.length === 1 ? "alert" : "alerts"}</a>`}</div>
    ${isPlotted && html`<${Plot} query=${rule.query} utc=${utc} />`}
    <dl class="pairs">${facts.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${Object.keys(rule.labels).length > 0 && html`<div class="chips"><${Chips} labels=${rule.labels} /></div>`}
    <${Annotations} annotations=${rule.annotations} /></div>`;
}
