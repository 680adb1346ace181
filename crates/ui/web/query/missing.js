// Why a query of PromQL has no result: selectors without series, and names or values that are nearest to theirs;
// selectors whose samples lie at other times, and their newest sample.
// Invariant: few and cheap requests, each of one series or some names; none unless a result is empty.
// Not here: how it looks (hint.js); changes of the query's text (replaced.js).
import { post } from "../api.js";
import { labelNames, labelValues, nearest } from "./completion.js";

/**
 * @typedef {{ name: string, type: "=" | "!=" | "=~" | "!~", value: string }} Matcher
 * @typedef {{ matchers: Matcher[], offset: number, range: number }} Selector Milliseconds.
 * @typedef {{ text: string, kind: "name" | "label" | "value", label: string, from: string, nearest: string[], isNear: boolean }} Missing `nearest` is near, or just some values.
 * @typedef {{ text: string, newest: number | null }} Elsewhere Seconds.
 * @typedef {{ missing: Missing[], elsewhere: Elsewhere[], others: string[] }} Found
 */

const SELECTORS_MAX = 5, NEAREST_MAX = 5;
const LOOKBACK_MS = 300_000;
/** Windows before a time in which a newest sample is looked for, in seconds; the last one has all times. */
const WINDOWS = [3600, 86_400, 7 * 86_400, 30 * 86_400, 365 * 86_400, Infinity];
/** Parts of a window that one request of the newest sample tells apart. */
const PARTS = 100;

const matcherText = (/** @type {Matcher} */ { name, type, value }) => `${/^[a-zA-Z_]\w*$/.test(name) ? name : JSON.stringify(name)}${type}${JSON.stringify(value)}`;
/** @param {Matcher[]} matchers */
export const selectorText = matchers => `{${matchers.map(matcherText).join(",")}}`;

/** Selectors of an expression, as the server parsed it, each once. @param {any} node @returns {Selector[]} */
export function selectorsOf(node) {
  /** @type {Map<string, Selector>} */
  const found = new Map();
  const visit = (/** @type {any} */ at, /** @type {number} */ range) => {
    if (!at || typeof at !== "object") return;
    if (Array.isArray(at)) { at.forEach(one => visit(one, range)); return; }
    if (Array.isArray(at.matchers)) {
      const one = { matchers: at.matchers, offset: at.offset ?? 0, range: range + (at.range ?? LOOKBACK_MS) };
      found.set(JSON.stringify(one), one);
      return;
    }
    const inside = at.type === "subquery" ? range + (at.range ?? 0) + Math.max(0, at.offset ?? 0) : range;
    for (const child of Object.values(at)) visit(child, inside);
  };
  visit(node, 0);
  return [...found.values()].slice(0, SELECTORS_MAX);
}

/** True if a series of a selector has samples between two times in seconds. @param {string} selector @param {number} start @param {number} end @param {AbortSignal} signal */
async function hasSeries(selector, start, end, signal) {
  return (await post("api/v1/series", { "match[]": selector, limit: "1", start: String(Math.max(0, start)), end: String(end) }, signal)).data.length > 0;
}

/** Why there is no result between two times. @param {string} expr @param {number} start Seconds; that of `end` for an instant. @param {number} end @param {AbortSignal} signal @returns {Promise<Found>} */
export async function whyEmpty(expr, start, end, signal) {
  const tree = (await post("api/v1/parse_query", { query: expr }, signal)).data, now = Date.now() / 1000;
  /** @type {Found} */
  const found = { missing: [], elsewhere: [], others: [] };
  for (const { matchers, offset, range } of selectorsOf(tree)) {
    const text = selectorText(matchers), shift = offset / 1000, from = start - shift - range / 1000, to = end - shift;
    if (!await hasSeries(text, 0, Math.max(now, end) + 365 * 86_400, signal)) found.missing.push(await missing(matchers, signal));
    else if (await newestSample(text, from, to, signal) !== null) found.others.push(text);
    else found.elsewhere.push({ text, newest: await newestSample(text, 0, to, signal) ?? await newestSample(text, to, Math.max(now, end), signal) });
  }
  return found;
}

/** The first matcher that no series has, with the nearest that some have. @param {Matcher[]} matchers @param {AbortSignal} signal @returns {Promise<Missing>} */
async function missing(matchers, signal) {
  const until = Date.now() / 1000 + 365 * 86_400, exists = (/** @type {Matcher[]} */ some) => hasSeries(selectorText(some), 0, until, signal);
  const name = matchers.find(one => one.name === "__name__"), metric = name?.type === "=" ? name.value : "";
  if (name && !await exists([name])) return { text: `No series has a name that matches ${matcherText(name)}.`, kind: "name", label: "__name__", from: name.value, nearest: await nearest("metric_names", plainOf(name), { start: "0" }, NEAREST_MAX, signal), isNear: true };
  const base = name ? [name] : [];
  for (const one of matchers) {
    if (one === name || isOpen(one) || await exists([...base, one])) continue;
    const more = { start: "0", ...(base.length && { "match[]": selectorText(base) }) };
    const labels = await labelNames("", metric, signal), isLabel = labels.isIncomplete || labels.values.includes(one.name);
    if (!isLabel) return { text: `No series${metric ? ` of ${metric}` : ""} has the label ${one.name}.`, kind: "label", label: one.name, from: one.name, nearest: await nearest("label_names", one.name, more, NEAREST_MAX, signal), isNear: true };
    const like = await nearest("label_values", plainOf(one), { ...more, label: one.name }, NEAREST_MAX, signal);
    const values = like.length ? like : (await labelValues(one.name, "", metric, signal)).values.slice(0, NEAREST_MAX);
    return { text: `No series${metric ? ` of ${metric}` : ""} matches ${matcherText(one)}.`, kind: "value", label: one.name, from: one.value, nearest: values, isNear: like.length > 0 };
  }
  return { text: `Each matcher of ${selectorText(matchers)} selects series, but no series matches all.`, kind: "value", label: "", from: "", nearest: [], isNear: false };
}

/** True if a matcher takes series without the label, so it cannot be what is missing on its own. @param {Matcher} matcher */
const isOpen = ({ type, value }) => (type === "=" && !value) || (type === "!=" && Boolean(value));

/** Text of a matcher without what makes it a regular expression. @param {Matcher} matcher */
const plainOf = ({ type, value }) => (type.endsWith("~") ? value.replace(/\(\?[a-zA-Z]+\)|[\\^$.*+?()[\]{}]/g, "").split("|")[0] ?? "" : value);

/**
 * Time of the newest sample of a selector between two times, to the second; null if there is none. Indexes of series are asked for a window first, which
 * costs no samples, then the samples of that window in ever smaller parts.
 * @param {string} selector @param {number} from @param {number} to @param {AbortSignal} signal @returns {Promise<number | null>}
 */
export async function newestSample(selector, from, to, signal) {
  let window = Infinity;
  if (to - from < 1) return null;
  for (const one of WINDOWS) { if (await hasSeries(selector, Math.max(from, to - one), to, signal)) { window = one; break; } if (to - one <= from) return null; }
  let low = Math.max(from, to - Math.min(window, 20 * 365 * 86_400)), high = Math.ceil(to);
  for (;;) {
    const step = Math.max(1, Math.ceil((high - low) / PARTS));
    const { result } = (await post("api/v1/query_range", { query: `count(last_over_time(${selector}[${step}s]))`, start: String(high - step * Math.floor((high - low - 1) / step)), end: String(high), step: String(step) }, signal)).data;
    const last = result[0]?.values.at(-1)?.[0];
    if (last === undefined) return null;
    if (step === 1) return last;
    low = last - step; high = last;
  }
}
