// Rules by file and group, or the slowest first: health, last evaluation, and the details of each on request.
// Not here: what is open in a row (rules/detail.js); which rows are in the document (list.js).
import { html, useEffect, useMemo } from "../lib/ui.js";
import { count, duration, rangeText } from "../format.js";
import { register } from "../keys.js";
import { List } from "../list.js";
import { Facts, Fault } from "../polled.js";
import { route } from "../route.js";
import { Detail } from "../rules/detail.js";
import { fits } from "../rules/filter.js";
import { useGroups } from "../rules/groups.js";
import { STATES } from "../rules/model.js";
import { Ago, focusFilter, Fold, State, useNow, useOpen } from "../rules/parts.js";
import { Bar, Choice, Search, Switch } from "../widgets.js";

/**
 * @typedef {import("../rules/model.js").Group} Group
 * @typedef {import("../rules/model.js").Rule} Rule
 * @typedef {import("../rules/parts.js").Open} Open
 * @typedef {{ key: string, kind: string, file?: string, group?: Group, rules?: number, rule?: Rule }} Row A file, a group with a number of rules, or a rule.
 */

/** Longer queries are cut in a row; its details have all. */
const QUERY_CHARS_MAX = 300;
const HEALTHS = /** @type {[string, string][]} */ ([["", "all"], ["ok", "ok"], ["err", "failed"], ["unknown", "not evaluated"]]);

/** Rows of rules that fit: below their groups and files, or, without them, by the time that they took. @param {Rule[]} rules @param {boolean} isByTime @param {Set<string>} open Keys of open rules and of folded groups. @returns {Row[]} */
export function rowsOf(rules, isByTime, open) {
  /** @type {Row[]} */
  const rows = [];
  const push = (/** @type {Rule} */ rule) => rows.push({ key: rule.key, kind: open.has(rule.key) ? "rule open" : "rule", rule });
  if (isByTime) {
    for (const rule of [...rules].sort((a, b) => b.tookMs - a.tookMs)) push(rule);
    return rows;
  }
  /** @type {Map<string, Map<Group, Rule[]>>} */
  const files = new Map();
  for (const rule of rules) {
    const { group } = rule, groups = files.get(group.file) ?? new Map(), members = groups.get(group) ?? [];
    members.push(rule);
    files.set(group.file, groups.set(group, members));
  }
  for (const [file, groups] of files) {
    rows.push({ key: `file\n${file}`, kind: "file", file });
    for (const [group, members] of groups) {
      rows.push({ key: foldKey(group), kind: "group", group, rules: members.length });
      if (!open.has(foldKey(group))) members.forEach(push);
    }
  }
  return rows;
}

/** Key of a folded group, so that groups are open unless they are folded. @param {Group} group */
const foldKey = group => `folded\n${group.key}`;

/** Rules by the filters of the address. @param {Group[] | null} groups @param {URLSearchParams} params */
function useFound(groups, params) {
  const filter = params.get("search") ?? "", type = params.get("type") ?? "", state = params.get("state") ?? "", health = params.get("health") ?? "";
  const all = useMemo(() => (groups ?? []).flatMap(group => group.rules), [groups]);
  // Counts of states are of all rules that have the other properties.
  const some = useMemo(() => { const fit = fits(filter); return all.filter(rule => (!type || rule.isAlerting === (type === "alerting")) && (!health || rule.health === health) && fit(rule)); }, [all, filter, type, health]);
  const found = useMemo(() => (state ? some.filter(rule => rule.state === state) : some), [some, state]);
  const counts = useMemo(() => new Map(STATES.map(name => [name, some.filter(rule => rule.state === name).length])), [some]);
  return { all, some, found, counts };
}

export function Page() {
  const { params } = route.value, utc = params.get("tz") === "utc", isByTime = params.get("sort") === "time", filters = ["search", "type", "state", "health", "sort"].map(name => params.get(name)).join("\n");
  const { groups, error } = useGroups(""), open = useOpen(), now = useNow();
  const { all, some, found, counts } = useFound(groups, params);
  const rows = useMemo(() => rowsOf(found, isByTime, open.keys), [found, isByTime, open.keys]);
  useEffect(() => register([{ key: "/", what: "write in the filter", run: focusFilter }]), []);
  const failed = useMemo(() => all.filter(rule => rule.health === "err").length, [all]), missed = (groups ?? []).reduce((sum, group) => sum + (group.rounds.find(round => round.name === "missed")?.count ?? 0), 0);
  const row = (/** @type {Row} */ one) => (one.rule ? html`<${RuleRow} rule=${one.rule} open=${open} now=${now} utc=${utc} />` : one.group ? html`<${GroupRow} group=${one.group} rules=${one.rules} open=${open} now=${now} utc=${utc} />` : html`<span class="mono soft">${one.file}</span>`);
  return html`<section class="panel"><h1>Rules</h1><${Fault} error=${error} />
    ${groups && !all.length && html`<p class="empty">No rules are loaded. The setting <code>--rules.files</code> names files with rules.</p>`}
    ${groups && all.length > 0 && html`<${Facts} facts=${[[count(all.length), "rules"], [count(groups.length), "groups"], [count(failed), "failed"], ...(missed ? [[count(missed), "missed rounds"]] : [])]} />
      <div class="bar"><${Search} name="search" label="Filter by text or label=value" size=${30} />
        <${Choice} name="type" label="Type" choices=${[["", "all"], ["alerting", "alerting"], ["recording", "recording"]]} /><${Choice} name="health" label="Health" choices=${HEALTHS} />
        <${Choice} name="sort" label="Order" choices=${[["", "file and group"], ["time", "the slowest first"]]} />
        <${Switch} name="state" label="State" choices=${[["", "all", some.length], ...STATES.filter(name => counts.get(name) || params.get("state") === name).map(name => [name, name, counts.get(name) ?? 0])]} />
        <span class="soft" role="status">${count(found.length)} of ${count(all.length)}</span>
        ${!isByTime && html`<button class="quiet" onClick=${() => open.set(groups.map(foldKey), true)}>Fold groups</button><button class="quiet" onClick=${() => open.set(groups.map(foldKey), false)}>Unfold groups</button>`}</div>
      ${found.length > 0 ? html`<${List} rows=${rows} label="Rules" top=${filters} row=${row} />` : html`<p class="empty">No rule fits these filters.</p>`}`}</section>`;
}

/** @param {{ group: Group, rules: number, open: Open, now: number, utc: boolean }} props */
const GroupRow = ({ group, rules, open, now, utc }) => html`<h2><${Fold} open=${{ ...open, has: (/** @type {string} */ key) => !open.has(key) }} id=${foldKey(group)}>${group.name}<//></h2>
  <span class="soft">${count(rules)} ${rules === 1 ? "rule" : "rules"}${group.limit > 0 ? `, limit ${count(group.limit)}` : ""}</span>
  <span class="soft">every ${rangeText(group.intervalMs / 1000)}, <${Ago} ms=${group.evaluatedMs} now=${now} utc=${utc} none="not evaluated yet" /></span>
  <span class="took" title="Duration of the last round, as part of the interval"><span class="value">${duration(group.tookMs)}</span><${Bar} part=${group.tookMs} of=${group.intervalMs} isLimit /></span>
  ${group.rounds.map(round => html`<span key=${round.name} class=${`tag round-${round.name.replace(" ", "-")}`} title=${round.why}>${count(round.count)} ${round.name}</span>`)}`;

/** @param {{ rule: Rule, open: Open, now: number, utc: boolean }} props */
const RuleRow = ({ rule, open, now, utc }) => html`<div class="cells"><${Fold} open=${open} id=${rule.key} title=${rule.name}><span class="mono">${rule.name}</span><//>
    <span class="mono soft only-wide">${rule.query.slice(0, QUERY_CHARS_MAX)}</span><${State} state=${rule.state} health=${rule.health} />
    <span class="value only-wide">${rule.isAlerting ? `${count(rule.alerts.length)} ${rule.alerts.length === 1 ? "alert" : "alerts"}` : rule.samples === null ? "" : `${count(rule.samples)} samples`}</span>
    <span class="value"><${Ago} ms=${rule.evaluatedMs} now=${now} utc=${utc} none="–" /></span><span class="value only-wide">${duration(rule.tookMs)}</span></div>
  ${open.has(rule.key) && html`<${Detail} rule=${rule} open=${open} now=${now} utc=${utc} />`}`;
