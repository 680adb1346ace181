// Groups, rules and alerts of /api/v1/rules, each with a key and a text to search in. Pure functions.
// Invariant: a key depends on names, query and labels alone, so that what is open stays open when the list is fetched again.
import { seriesText } from "../format.js";

/**
 * @typedef {Record<string, string>} Labels
 * @typedef {{ key: string, file: string, name: string, intervalMs: number, limit: number, evaluatedMs: number | null, tookMs: number, rounds: Round[], rules: Rule[] }} Group
 * @typedef {{ key: string, isAlerting: boolean, name: string, query: string, state: string, health: string, error: string, forMs: number, keepMs: number,
 *   labels: Labels, annotations: Labels, evaluatedMs: number | null, tookMs: number, samples: number | null, alerts: Alert[], group: Group, search: string, own: Labels }} Rule
 *   `samples` is null where the server does not count them; `own` has names that a filter takes like labels.
 * @typedef {{ key: string, name: string, state: string, labels: Labels, annotations: Labels, value: string, activeMs: number | null, keptMs: number | null, rule: Rule, search: string, own: Labels }} Alert
 * @typedef {{ name: string, count: number, why: string }} Round Rounds of a group that were not evaluated at their time.
 */

/** States of alerts and alerting rules, the most urgent first. */
export const STATES = ["firing", "pending", "unknown", "inactive"];
/** @type {[string, string, string][]} */
const ROUNDS = [
  ["missedRounds", "missed", "rounds that were not evaluated, since the round before took too long"],
  ["caughtUpRounds", "caught up", "rounds that were evaluated after a restart, for times at which the server was down"],
  ["lostRounds", "lost", "rounds at which the server was down, too long before its restart to be evaluated"],
  ["repairedRounds", "repaired", "rounds that were evaluated again for out-of-order samples"],
];

/** A time in milliseconds; null for none, which Go writes as the year 1. @param {unknown} text */
export function timeMs(text) {
  const found = typeof text === "string" ? Date.parse(text) : NaN;
  return found > 0 ? found : null;
}

/** @param {any} found @returns {Group} */
export function groupOf(found) {
  const file = String(found.file ?? ""), name = String(found.name ?? "");
  const rounds = ROUNDS.map(([field, title, why]) => ({ name: title, count: Number(found[field]) || 0, why })).filter(round => round.count > 0);
  /** @type {Group} */
  const group = {
    key: `${file}\n${name}`, file, name, intervalMs: 1000 * (Number(found.interval) || 0), limit: Number(found.limit) || 0,
    evaluatedMs: timeMs(found.lastEvaluation), tookMs: 1000 * (Number(found.evaluationTime) || 0), rounds, rules: [],
  };
  /** Rules with equal names, queries and labels are told apart by their order. @type {Map<string, number>} */
  const seen = new Map();
  for (const one of found.rules ?? []) {
    const rule = ruleOf(one, group), before = seen.get(rule.key) ?? 0;
    seen.set(rule.key, before + 1);
    rule.key = `${rule.key}\n${before}`;
    for (const alert of one.alerts ?? []) rule.alerts.push(alertOf(alert, rule));
    group.rules.push(rule);
  }
  return group;
}

/** @param {any} found @param {Group} group @returns {Rule} */
function ruleOf(found, group) {
  const isAlerting = found.type !== "recording", name = String(found.name ?? ""), query = String(found.query ?? ""), labels = found.labels ?? {}, annotations = found.annotations ?? {}, error = String(found.lastError ?? "");
  return {
    key: [group.key, name, query, seriesText(labels)].join("\n"), isAlerting, name, query, state: isAlerting ? String(found.state ?? "unknown") : "recording", health: String(found.health ?? "unknown"), error,
    forMs: 1000 * (Number(found.duration) || 0), keepMs: 1000 * (Number(found.keepFiringFor) || 0), labels, annotations, evaluatedMs: timeMs(found.lastEvaluation), tookMs: 1000 * (Number(found.evaluationTime) || 0),
    samples: typeof found.samples === "number" ? found.samples : null, alerts: [], group, search: searchText(name, labels, annotations, group, query, error),
    own: { ...(isAlerting ? { alertname: name } : { __name__: name }), group: group.name, file: group.file },
  };
}

/** @param {any} found @param {Rule} rule @returns {Alert} */
function alertOf(found, rule) {
  const { alertname, ...labels } = found.labels ?? {}, name = String(alertname ?? rule.name), annotations = found.annotations ?? {};
  return {
    key: `${rule.key}\n${seriesText(labels)}`, name, state: String(found.state ?? "unknown"), labels, annotations, value: String(found.value ?? ""), activeMs: timeMs(found.activeAt), keptMs: timeMs(found.keepFiringSince),
    rule, search: searchText(name, labels, annotations, rule.group), own: { alertname: name, group: rule.group.name, file: rule.group.file },
  };
}

/** @param {string} name @param {Labels} labels @param {Labels} annotations @param {Group} group @param {string[]} others */
const searchText = (name, labels, annotations, group, ...others) => [name, seriesText(labels), group.name, group.file, ...Object.values(annotations), ...others].join(" ").toLowerCase();

/** Place of a state among those by urgency. @param {{ state: string }} one */
export const urgency = ({ state }) => { const at = STATES.indexOf(state); return at < 0 ? STATES.length : at; };

/** Time since an alert is active, and until it fires or stops to fire. @param {Alert} alert @param {number} nowMs */
export function timing({ state, activeMs, keptMs, rule }, nowMs) {
  const left = (/** @type {number} */ untilMs) => Math.max(0, untilMs - nowMs);
  return {
    activeForMs: activeMs === null ? null : Math.max(0, nowMs - activeMs),
    firesInMs: state === "pending" && activeMs !== null ? left(activeMs + rule.forMs) : null,
    endsInMs: state === "firing" && keptMs !== null ? left(keptMs + rule.keepMs) : null,
  };
}

/** Parts of a text: those with an address are links. Only http and https; an address with a template in it is none. @param {string} text @returns {{ text: string, href: string }[]} */
export function linkedParts(text) {
  /** @type {{ text: string, href: string }[]} */
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(/\bhttps?:\/\/[^\s<>"'`|\\^]+/gi)) {
    // A full stop or a bracket after an address is the sentence's.
    const href = found[0].replace(/[.,;:!?)\]}*_]+$/, "");
    if (found[0].includes("{{") || !isAddress(href)) continue;
    if (found.index > at) parts.push({ text: text.slice(at, found.index), href: "" });
    parts.push({ text: href, href });
    at = found.index + href.length;
  }
  if (at < text.length || !parts.length) parts.push({ text: text.slice(at), href: "" });
  return parts;
}

/** @param {string} href */
function isAddress(href) {
  try { return /^https?:$/.test(new URL(href).protocol); } catch { return false; }
}
