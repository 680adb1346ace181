// Completion of names and values, asked from the server by what is typed: never the whole list.
// The only module that knows which endpoints answer it, and that an answer may be incomplete.
// Not here: functions and keywords, which the grammar knows; the editor.
import { data } from "../api.js";
import { isPlain } from "../format.js";

export const LIMIT = 100;
const WAIT_MS = 120;

/** @typedef {{ values: string[], isIncomplete: boolean }} Found */

/** Text as a regular expression that matches it alone. @param {string} text */
const literal = text => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** A selector of a label's values that contain what is typed. @param {string} label @param {string} typed @param {string} metric */
function selector(label, typed, metric) {
  const matchers = typed ? [`${JSON.stringify(label)}=~${JSON.stringify(`(?i:.*${literal(typed)}.*)`)}`] : [];
  if (metric && label !== "__name__") matchers.unshift(`__name__=${JSON.stringify(metric)}`);
  if (!matchers.length) matchers.push(`${JSON.stringify(label)}!=""`);
  return `{${matchers.join(",")}}`;
}

/** @param {string} label @param {string} typed @param {string} metric @param {AbortSignal} signal @returns {Promise<Found>} */
export async function labelValues(label, typed, metric, signal) {
  const path = `api/v1/label/${encodeURIComponent(label)}/values`;
  const values = await data(path, { "match[]": selector(label, typed, metric), limit: String(LIMIT) }, signal);
  return { values, isIncomplete: values.length >= LIMIT };
}

/** @param {string} typed @param {string} metric @param {AbortSignal} signal @returns {Promise<Found>} */
export async function labelNames(typed, metric, signal) {
  /** @type {Record<string, string>} */
  const match = metric ? { "match[]": `{__name__=${JSON.stringify(metric)}}` } : {};
  const names = await data("api/v1/labels", { ...match, limit: String(10 * LIMIT) }, signal);
  const fitting = names.filter((/** @type {string} */ name) => name !== "__name__" && name.toLowerCase().includes(typed.toLowerCase()));
  return { values: fitting.slice(0, LIMIT), isIncomplete: fitting.length > LIMIT };
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
    const found = kind === "label" ? await labelNames(typed, metric, stop.signal) : await labelValues(kind === "value" ? label : "__name__", typed, metric, stop.signal);
    const options = found.values.map(value => option(kind, value));
    if (found.isIncomplete) options.push({ label: `more than ${LIMIT}: type on`, type: "text", boost: -99, apply: () => {} });
    return { from: context.pos - typed.length, options, filter: false };
  } catch {
    return null;
  }
}

/** @param {string} kind @param {string} value @returns {any} */
function option(kind, value) {
  if (kind === "value") return { label: value, type: "constant", apply: JSON.stringify(value).slice(1, -1) };
  const text = kind === "metric" && !isPlain(value) ? `{${JSON.stringify(value)}}` : value;
  /** @type {any} */
  const found = { label: value, type: kind === "metric" ? "variable" : "property", apply: text };
  if (kind === "metric") found.info = async () => {
    const help = await metricHelp(value, AbortSignal.timeout(2000)).catch(() => "");
    return help ? Object.assign(document.createElement("div"), { textContent: help }) : null;
  };
  return found;
}
