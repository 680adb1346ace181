// Completion of names and values, asked from the server by what is typed: never the whole list.
// The only module that knows which endpoints answer it, and that an answer may be incomplete.
// Not here: functions and keywords, which the grammar knows; the editor.
import { data, isMissing, stream } from "../api.js";
import { isPlain } from "../format.js";

export const LIMIT = 100;
const WAIT_MS = 120;
/** Characters of type and help next to a name in the list; the marked one has all. */
const DETAIL_MAX = 60;
/** Least similarity of a name that is offered in place of one that no series has. */
const NEAR_PERCENT = "70";

/** @typedef {{ values: string[], isIncomplete: boolean, help?: Map<string, string> }} Found */

/** Text as a regular expression that matches it alone. @param {string} text */
const literal = text => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** A selector of one metric, or of all series. @param {string} metric */
const metricSelector = metric => (metric ? `{__name__=${JSON.stringify(metric)}}` : "");

/** False once a server without `/api/v1/search` was asked: the label APIs answer then. */
let canSearch = true;

/**
 * One search; null if the server has none.
 * @param {string} kind @param {Record<string, string>} form @param {AbortSignal} signal
 */
async function search(kind, form, signal) {
  if (!canSearch) return null;
  try {
    return await stream(`api/v1/search/${kind}`, { limit: String(LIMIT), start: "0", ...form }, signal);
  } catch (error) {
    if (!isMissing(error)) throw error;
    canSearch = false;
    return null;
  }
}

/**
 * Names or values of any time: those that begin with what is typed, which the server looks up, and if they are few, those that
 * contain it in any case, for which it reads all names.
 * @param {"metric_names" | "label_names" | "label_values"} kind @param {string} typed @param {Record<string, string>} more @param {AbortSignal} signal @returns {Promise<Found | null>}
 */
async function searchFor(kind, typed, more, signal) {
  /** @type {Record<string, string>} */
  const terms = typed ? { "search[]": typed } : {};
  let found = await search(kind, { ...more, ...terms, fuzz_threshold: "100" }, signal);
  if (!found) return null;
  if (typed && !found.hasMore && found.results.length < LIMIT) {
    const inside = await search(kind, { ...more, ...terms, fuzz_alg: "jarowinkler", case_sensitive: "false", sort_by: "score" }, signal);
    found = inside ?? found;
  }
  const { results, hasMore } = found;
  const help = new Map(results.map(one => [one.name, [one.type, one.unit, one.help].filter(Boolean).join(" · ")]));
  return { values: results.map(one => one.name ?? one.value), isIncomplete: hasMore, help };
}

/**
 * Names or values of any time that are most like a text, the nearest first: those that contain it, or by Jaro-Winkler similarity. None if the server has no search.
 * @param {"metric_names" | "label_names" | "label_values"} kind @param {string} text @param {Record<string, string>} more @param {number} most @param {AbortSignal} signal @returns {Promise<string[]>}
 */
export async function nearest(kind, text, more, most, signal) {
  const found = await search(kind, { ...more, "search[]": text, limit: String(most), fuzz_alg: "jarowinkler", fuzz_threshold: NEAR_PERCENT, case_sensitive: "false", sort_by: "score" }, signal);
  return (found?.results ?? []).map(one => one.value ?? one.name);
}

/** Names of metrics that contain what is typed. @param {string} typed @param {AbortSignal} signal @returns {Promise<Found>} */
export async function metricNames(typed, signal) {
  return await searchFor("metric_names", typed, { include_metadata: "true" }, signal) ?? valuesByRegex("__name__", typed, "", signal);
}

/** @param {string} label @param {string} typed @param {string} metric @param {AbortSignal} signal @returns {Promise<Found>} */
export async function labelValues(label, typed, metric, signal) {
  const match = metricSelector(metric);
  return await searchFor("label_values", typed, { label, ...(match && { "match[]": match }) }, signal) ?? valuesByRegex(label, typed, metric, signal);
}

/** @param {string} typed @param {string} metric @param {AbortSignal} signal @returns {Promise<Found>} */
export async function labelNames(typed, metric, signal) {
  const match = metricSelector(metric), more = { ...(match && { "match[]": match }) };
  const found = await searchFor("label_names", typed, more, signal);
  if (found) return { ...found, values: found.values.filter(name => name !== "__name__") };
  const names = await data("api/v1/labels", { ...more, limit: String(LIMIT) }, signal);
  const fitting = names.filter((/** @type {string} */ name) => name !== "__name__" && name.toLowerCase().includes(typed.toLowerCase()));
  return { values: fitting, isIncomplete: names.length >= LIMIT };
}

/** Values of a label that contain what is typed, by the label API. @param {string} label @param {string} typed @param {string} metric @param {AbortSignal} signal @returns {Promise<Found>} */
async function valuesByRegex(label, typed, metric, signal) {
  const matchers = typed ? [`${JSON.stringify(label)}=~${JSON.stringify(`(?i:.*${literal(typed)}.*)`)}`] : [];
  if (metric && label !== "__name__") matchers.unshift(`__name__=${JSON.stringify(metric)}`);
  if (!matchers.length) matchers.push(`${JSON.stringify(label)}!=""`);
  const values = await data(`api/v1/label/${encodeURIComponent(label)}/values`, { "match[]": `{${matchers.join(",")}}`, limit: String(LIMIT) }, signal);
  return { values, isIncomplete: values.length >= LIMIT };
}

/** Type, unit and help of a metric. @param {string} metric @param {AbortSignal} signal @returns {Promise<string>} */
export async function metricHelp(metric, signal) {
  const found = (await data("api/v1/metadata", { metric, limit_per_metric: "1" }, signal))[metric]?.[0];
  return found ? [found.type, found.unit, found.help].filter(Boolean).join(" · ") : "";
}

/** Kind of name to complete, and its typed part, by the text before the cursor. @param {string} before @returns {{ kind: "metric" | "label" | "value", typed: string, label: string, metric: string } | null} */
export function contextOf(before) {
  const open = before.lastIndexOf("{");
  const inside = open > before.lastIndexOf("}") ? before.slice(open + 1) : null;
  if (inside === null) {
    const grouped = /\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)$/.exec(before);
    if (grouped) return { kind: "label", typed: /[\w]*$/.exec(grouped[1] ?? "")?.[0] ?? "", label: "", metric: "" };
    const typed = /[a-zA-Z_:][a-zA-Z0-9_:]*$/.exec(before)?.[0] ?? "";
    return typed && !/[\d.]$/.test(before.slice(0, before.length - typed.length)) ? { kind: "metric", typed, label: "", metric: "" } : null;
  }
  const metric = /[a-zA-Z_:][a-zA-Z0-9_:]*$/.exec(before.slice(0, open))?.[0] ?? "";
  const value = /([\w]+|"(?:[^"\\]|\\.)*")\s*(?:=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)$/.exec(inside);
  if (value) return { kind: "value", typed: value[2] ?? "", label: (value[1] ?? "").replaceAll('"', ""), metric };
  const label = /(?:^|,)\s*(\w*)$/.exec(inside);
  return label ? { kind: "label", typed: label[1] ?? "", label: "", metric } : null;
}

/** A source of CodeMirror. @param {any} context @returns {Promise<any>} */
export async function complete(context) {
  const before = context.state.sliceDoc(0, context.pos), wanted = contextOf(before);
  if (!wanted || (wanted.kind === "metric" && !wanted.typed && !context.explicit)) return null;
  const stop = new AbortController();
  context.addEventListener("abort", () => stop.abort(), { onDocChange: true });
  await new Promise(resolve => setTimeout(resolve, WAIT_MS));
  if (stop.signal.aborted) return null;
  const { kind, typed, label, metric } = wanted;
  try {
    const found = await (kind === "label" ? labelNames(typed, metric, stop.signal) : kind === "value" ? labelValues(label, typed, metric, stop.signal) : metricNames(typed, stop.signal));
    const options = found.values.map(value => option(kind, value, found.help?.get(value)));
    if (found.isIncomplete) options.push({ label: `more than ${LIMIT}: type on`, type: "text", boost: -99, apply: () => {} });
    return { from: context.pos - typed.length, options, filter: false };
  } catch {
    return null;
  }
}

/** @param {string} kind @param {string} value @param {string} [help] @returns {any} */
function option(kind, value, help) {
  if (kind === "value") return { label: value, type: "constant", apply: JSON.stringify(value).slice(1, -1) };
  const text = kind === "metric" && !isPlain(value) ? `{${JSON.stringify(value)}}` : value;
  /** @type {any} */
  const found = { label: value, type: kind === "metric" ? "variable" : "property", apply: text };
  if (help) found.detail = help.length > DETAIL_MAX ? `${help.slice(0, DETAIL_MAX)}…` : help;
  if (kind === "metric") found.info = async () => {
    const text = help ?? await metricHelp(value, AbortSignal.timeout(2000)).catch(() => "");
    return text ? Object.assign(document.createElement("div"), { textContent: text }) : null;
  };
  return found;
}
