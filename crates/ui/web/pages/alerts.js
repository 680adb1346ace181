// Alerts: by rule, as Prometheus lists them, or one by one with labels that filter; the most urgent first.
// Not here: details of a rule (rules/detail.js); which rows are in the document (list.js).
import { html, useEffect, useMemo } from "../lib/ui.js";
import { count, seriesText, short } from "../format.js";
import { register } from "../keys.js";
import { List } from "../list.js";
import { Facts, Fault } from "../polled.js";
import { hrefOf, route } from "../route.js";
import { Detail, queryHref, ruleHref } from "../rules/detail.js";
import { fits } from "../rules/filter.js";
import { useGroups } from "../rules/groups.js";
import { STATES, urgency } from "../rules/model.js";
import { Annotations, Chips, focusFilter, Fold, Since, State, useNow, useOpen } from "../rules/parts.js";
import { Choice, Search, Switch } from "../widgets.js";

/**
 * @typedef {import("../rules/model.js").Rule} Rule
 * @typedef {import("../rules/model.js").Alert} Alert
 * @typedef {import("../rules/parts.js").Open} Open
 * @typedef {{ rule: Rule, alerts: Alert[] }} Found A rule, and its alerts that fit.
 * @typedef {{ key: string, kind: string, found?: Found, alert?: Alert }} Row
 */

/** Rules with an alert that fits, and rules without alerts that fit themselves; the most urgent first. @param {Rule[]} rules @param {string} filter @param {string} state @returns {Found[]} */
export function fitting(rules, filter, state) {
  const fit = fits(filter), has = (/** @type {string} */ own) => !state || own === state;
  /** @type {Found[]} */
  const found = [];
  for (const rule of rules) {
    const alerts = rule.alerts.filter(alert => has(alert.state) && fit(alert));
    if (alerts.length || (!rule.alerts.length && has(rule.state) && fit(rule))) found.push({ rule, alerts });
  }
  return found.sort((a, b) => urgency(a.rule) - urgency(b.rule));
}

/** Rows of a list: rules with their alerts where they are open, or alerts alone, of each state the newest first. @param {Found[]} found @param {boolean} isFlat @param {Set<string>} open @returns {Row[]} */
export function rowsOf(found, isFlat, open) {
  const rowOf = (/** @type {Alert} */ alert) => ({ key: alert.key, kind: isFlat ? "alert single" : "alert", alert });
  if (isFlat) return found.flatMap(one => one.alerts).sort((a, b) => urgency(a) - urgency(b) || (b.activeMs ?? 0) - (a.activeMs ?? 0)).map(rowOf);
  return found.flatMap(one => (open.has(one.rule.key) ? [{ key: one.rule.key, kind: "rule open", found: one }, ...[...one.alerts].sort((a, b) => urgency(a) - urgency(b)).map(rowOf)] : [{ key: one.rule.key, kind: "rule", found: one }]));
}

/** Alerts and rules without alerts by state. @param {Found[]} found */
function countsOf(found) {
  const counts = new Map(STATES.map(name => [name, 0])), add = (/** @type {string} */ state) => counts.set(state, (counts.get(state) ?? 0) + 1);
  for (const { rule, alerts } of found) alerts.length ? alerts.forEach(alert => add(alert.state)) : add(rule.state);
  return counts;
}

export function Page() {
  const { params } = route.value, utc = params.get("tz") === "utc", filter = params.get("search") ?? "", state = params.get("state") ?? "", isFlat = params.get("view") === "list";
  const { groups, error } = useGroups("alert"), open = useOpen(), now = useNow();
  const rules = useMemo(() => (groups ?? []).flatMap(group => group.rules.filter(rule => rule.isAlerting)), [groups]);
  const whole = useMemo(() => countsOf(fitting(rules, "", "")), [rules]), some = useMemo(() => fitting(rules, filter, ""), [rules, filter]);
  const counts = useMemo(() => countsOf(some), [some]), found = useMemo(() => (state ? fitting(rules, filter, state) : some), [rules, some, filter, state]);
  const rows = useMemo(() => rowsOf(found, isFlat, open.keys), [found, isFlat, open.keys]);
  useEffect(() => register([{ key: "/", what: "write in the filter", run: focusFilter }]), []);
  const shown = found.reduce((sum, one) => sum + one.alerts.length, 0), all = rules.reduce((sum, rule) => sum + rule.alerts.length, 0);
  const row = (/** @type {Row} */ one) => (one.alert ? html`<${AlertRow} alert=${one.alert} isFlat=${isFlat} now=${now} utc=${utc} />` : html`<${RuleRow} found=${one.found} open=${open} now=${now} utc=${utc} />`);
  // The flat list has no rules without alerts.
  const states = STATES.filter(name => (!isFlat || name !== "inactive") && (counts.get(name) || state === name));
  return html`<section class="panel"><h1>Alerts</h1><${Fault} error=${error} />
    ${groups && !rules.length && html`<p class="empty">No alerting rules are loaded. The setting <code>--rules.files</code> names files with rules.</p>`}
    ${groups && rules.length > 0 && html`<${Facts} facts=${[[count(whole.get("firing")), "firing"], [count(whole.get("pending")), "pending"], [count(rules.length), "alerting rules"]]} />
      <div class="bar"><${Search} name="search" label="Filter by text or label=value" size=${30} />
        <${Choice} name="view" label="Show" choices=${[["", "by rule"], ["list", "one list"]]} />
        <${Switch} name="state" label="State" choices=${[["", "all", states.reduce((sum, name) => sum + (counts.get(name) ?? 0), 0)], ...states.map(name => [name, name, counts.get(name) ?? 0])]} />
        <span class="soft" role="status">${count(shown)} of ${count(all)} alerts${isFlat ? "" : `, ${count(found.length)} of ${count(rules.length)} rules`}</span>
        ${!isFlat && html`<button class="quiet" onClick=${() => open.set(found.filter(one => one.alerts.length).map(one => one.rule.key), true)}>Open all</button><button class="quiet" onClick=${() => open.set(rules.map(rule => rule.key), false)}>Close all</button>`}</div>
      ${rows.length > 0 ? html`<${List} rows=${rows} label="Alerts" top=${[filter, state, isFlat].join("\n")} row=${row} />` : html`<p class="empty">${all && (filter || state) ? "No alert fits these filters." : "No alert is firing or pending."}</p>`}`}</section>`;
}

/** @param {{ found: Found, open: Open, now: number, utc: boolean }} props */
function RuleRow({ found: { rule, alerts }, open, now, utc }) {
  const counts = ["firing", "pending"].map(state => ({ state, number: alerts.filter(alert => alert.state === state).length })).filter(one => one.number > 0);
  return html`<div class="cells by-rule"><${Fold} open=${open} id=${rule.key} title=${rule.name}><span class="mono">${rule.name}</span><//>
      <span class="soft only-wide" title=${rule.group.file}>${rule.group.name}</span>
      <span class="counts">${counts.map(({ state, number }) => html`<span key=${state} class=${`badge state-${state}`}>${count(number)} ${state}</span>`)}${(!counts.length || rule.health === "err") && html`<${State} state=${rule.state} health=${rule.health} />`}</span></div>
    ${open.has(rule.key) && html`<${Detail} rule=${rule} open=${open} now=${now} utc=${utc} isOnAlerts />`}`;
}

/** The series that a rule writes of an alert. @param {Alert} alert */
const historyOf = ({ name, labels }) => seriesText({ __name__: "ALERTS", alertname: name, ...labels });

/** @param {{ alert: Alert, isFlat: boolean, now: number, utc: boolean }} props */
const AlertRow = ({ alert, isFlat, now, utc }) => html`<div class="alert-head"><${State} state=${alert.state} />
    ${isFlat && html`<a class="mono" href=${ruleHref(alert.rule)} data-page="rules" title=${`Rule in ${alert.rule.group.file}`}>${alert.name}</a>`}<span class="mono" title=${alert.value}>${valueText(alert.value)}</span><${Since} alert=${alert} now=${now} utc=${utc} />
    <span class="grow"></span><a href=${queryHref(alert.rule.query)} data-page="query">Query</a><a href=${queryHref(historyOf(alert))} data-page="query" title="When this alert was pending and firing">History</a></div>
  <div class="chips"><${Chips} labels=${alert.labels} /></div><${Annotations} annotations=${alert.annotations} />`;

/** @param {string} text */
const valueText = text => { const value = Number(text.replace("Inf", "Infinity")); return text === "" ? "" : Number.isNaN(value) ? text : short(value); };
