// Rules and alerts of /api/v1/rules: one flat, dense list with filters by state, name and label. In the navigation
// only while it is open, since this server evaluates no rules.
// Not here: which rows are in the document (virtual.js).
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { data } from "../api.js";
import { count, duration, seriesText } from "../format.js";
import { Facts, Fault } from "../polled.js";
import { patch, route } from "../route.js";
import { flatMapInTasks } from "../tasks.js";
import { Rows } from "../virtual.js";
import { Choice, Search } from "../widgets.js";

const REFRESH_MS = 30_000;
/** States, the most urgent first; `recording` is for rules without alerts. */
const STATES = ["firing", "pending", "unknown", "inactive", "recording"];
/** @typedef {{ kind: "alert" | "rule", state: string, name: string, labels: Record<string, string>, labelText: string, group: string, value: string, detail: string, health: string, search: string }} Line */

/** Lines of one group: a rule, and below it its alerts. @param {any} group @returns {Line[]} */
export function linesOf(group) {
  /** @type {Line[]} */
  const lines = [];
  for (const rule of group.rules ?? []) {
    const alerts = rule.alerts ?? [], state = rule.type === "recording" ? "recording" : rule.state ?? "inactive";
    lines.push(line("rule", state, rule.name, rule.labels ?? {}, group.name, rule.type === "recording" ? "" : `${alerts.length}`, rule.lastError || rule.query || "", rule.health ?? "", rule.evaluationTime));
    for (const alert of alerts) {
      const { alertname, ...labels } = alert.labels ?? {};
      lines.push(line("alert", alert.state, alertname ?? rule.name, labels, group.name, alert.value ?? "", Object.values(alert.annotations ?? {}).join(" · ") || rule.query || "", ""));
    }
  }
  return lines;
}

/** @param {"alert" | "rule"} kind @param {string} state @param {string} name @param {Record<string, string>} labels @param {string} group @param {string} value @param {string} detail @param {string} health @param {number} [seconds] @returns {Line} */
function line(kind, state, name, labels, group, value, detail, health, seconds) {
  const labelText = Object.keys(labels).length ? seriesText(labels) : "";
  return { kind, state, name, labels, labelText, group, value, detail, health: [health === "ok" ? "" : health, seconds ? duration(1000 * seconds) : ""].filter(Boolean).join(" "), search: `${name} ${labelText} ${group} ${detail}`.toLowerCase() };
}

/** A filter: words, and matchers like `severity=page`. @param {Line[]} lines @param {string} filter @param {string} state @param {string} kind */
export function fitting(lines, filter, state, kind) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const pairs = words.filter(word => /^\w+=/.test(word)).map(word => /** @type {[string, string]} */ ([word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)]));
  const plain = words.filter(word => !/^\w+=/.test(word));
  return lines.filter(one => (!state || one.state === state) && (!kind || one.kind === kind) && plain.every(word => one.search.includes(word)) && pairs.every(([label, value]) => (one.labels[label] ?? "").toLowerCase() === value));
}

/** Rules and alerts, fetched again while the page is visible. @returns {{ lines: Line[] | null, groups: number, error: any }} */
function useLines() {
  const [state, setState] = useState(/** @type {{ lines: Line[] | null, groups: number, error: any }} */ ({ lines: null, groups: 0, error: null }));
  const tenant = route.value.params.get("tenant");
  useEffect(() => {
    const stop = new AbortController();
    const refresh = async () => {
      if (document.hidden) return;
      try {
        const { groups } = await data("api/v1/rules", {}, stop.signal);
        const lines = await flatMapInTasks(/** @type {any[]} */ (groups), linesOf, stop.signal);
        // By urgency, otherwise in the order of the groups.
        const by = STATES.map(name => lines.filter(one => one.state === name)), others = lines.filter(one => !STATES.includes(one.state));
        setState({ lines: [...others, ...by.flat()], groups: groups.length, error: null });
      } catch (error) {
        if (!stop.signal.aborted) setState(now => ({ ...now, error }));
      }
    };
    refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => { stop.abort(); clearInterval(timer); };
  }, [tenant]);
  return state;
}

export function Page() {
  const { params } = route.value, filter = params.get("search") ?? "", state = params.get("state") ?? "", kind = params.get("kind") ?? "";
  const { lines, groups, error } = useLines();
  const found = useMemo(() => fitting(lines ?? [], filter, state, kind), [lines, filter, state, kind]);
  const counts = useMemo(() => new Map(STATES.map(name => [name, (lines ?? []).filter(one => one.state === name).length])), [lines]);
  const rules = useMemo(() => (lines ?? []).filter(one => one.kind === "rule").length, [lines]);
  return html`<section class="panel"><h1>Rules and alerts</h1><${Fault} error=${error} />
    ${lines && !lines.length && html`<p class="empty">This server evaluates no rules, so it has no alerts.</p>`}
    ${lines && lines.length > 0 && html`<${Facts} facts=${[[count(rules), "rules"], [count(lines.length - rules), "alerts"], [count(groups), "groups"]]} />
      <div class="bar"><${Search} name="search" label="Filter by name, label, text" size=${30} />
        <${Choice} name="kind" label="Show" choices=${[["", "rules and alerts"], ["alert", "alerts"], ["rule", "rules"]]} />
        <div class="switch" role="group" aria-label="State">${["", ...STATES].map(name => (!name || Number(counts.get(name)) > 0) && html`<button key=${name} aria-pressed=${state === name} onClick=${() => patch({ state: name || undefined }, "replace")}>${name || "all"} ${name ? count(counts.get(name)) : ""}</button>`)}</div>
        <span class="soft" role="status">${count(found.length)} of ${count(lines.length)}</span></div>
      <${Rows} length=${found.length} label="Rules and alerts" isTall top=${`${filter}\n${state}\n${kind}`} head=${html`<th>state</th><th>name</th><th>labels</th><th class="right">value</th><th>query or annotation</th><th>group</th><th>health</th>`}
        row=${(/** @type {number} */ idx) => cells(/** @type {Line} */ (found[idx]))} />`}</section>`;
}

/** @param {Line} one */
const cells = one => html`<td><span class=${`state-${STATES.includes(one.state) ? one.state : "unknown"}`}>${one.state}</span></td><td class="mono" title=${one.name}>${one.kind === "alert" ? "↳ " : ""}${one.name}</td><td class="mono" title=${one.labelText}>${one.labelText}</td>
  <td class="value">${one.kind === "rule" && one.value ? `${one.value} alerts` : one.value}</td><td class="mono soft" title=${one.detail}>${one.detail}</td><td title=${one.group}>${one.group}</td><td>${one.health}</td>`;
