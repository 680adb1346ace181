// Requests of the three languages, and their answers as one shape for table and graph.
// Not here: completion; how a result looks.
import { get, post, text as answerText } from "../api.js";
import { seriesText } from "../format.js";
import { flatMapInTasks } from "../tasks.js";
import { windowOf } from "./panel.js";

/**
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {{ count: string, sum: string, buckets?: [number, string, string, string][] }} Histogram
 * @typedef {{ labels: Record<string, string>, text: string, value: string, number: number, time: number, histogram?: Histogram }} Row
 * @typedef {{ labels: Record<string, string>, text: string, points: (number | null)[], histograms: (Histogram | null)[] | null,
 *   parts?: { head: string, labels: Record<string, string> } }} Series `parts` of the text, unless it is that of the labels.
 * @typedef {{ labels: Record<string, string>, text: string, parts: { head: string, labels: Record<string, string> }, points: [number, number][] }} Timed Points with times of their own.
 * @typedef {{ rows: Row[] | null, times: number[], series: Series[], plan: any, raw: Raw | null, warnings: string[], ms: number }} Result
 * @typedef {{ path: string, form: URLSearchParams, status: string, type: string, text: string }} Raw Request, and the answer as it came.
 */

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Result>} */
export async function run(panel, signal) {
  const start = performance.now();
  const found = panel.tab === "json" || panel.tab === "raw" ? await raw(panel, signal) : await { promql, influxql, graphite }[panel.lang](panel, signal);
  return { rows: null, times: [], series: [], plan: null, raw: null, warnings: [], ...found, ms: performance.now() - start };
}

/** The request of a panel: what the page sends, and what the tab Raw shows. @param {Panel} panel @returns {{ path: string, form: URLSearchParams }} */
export function requestOf(panel) {
  const { start, end, step } = windowOf(panel), { lang, tab, expr } = panel;
  if (lang === "influxql") {
    const query = expr.replaceAll("$timeFilter", `time >= ${start * 1000}ms AND time <= ${end * 1000}ms`).replaceAll("$__interval", `${Math.ceil(step)}s`);
    return { path: "query", form: new URLSearchParams({ q: query, db: panel.db, epoch: "ms" }) };
  }
  if (lang === "graphite") {
    const form = new URLSearchParams({ from: String(Math.floor(start)), until: String(Math.ceil(end)), format: "json", maxDataPoints: "1000" });
    for (const target of expr.split("\n").filter(line => line.trim())) form.append("target", target.trim());
    return { path: "render", form };
  }
  const isInstant = tab === "table" || (tab !== "graph" && tab !== "plan" && panel.request === "instant");
  // A request that is shown has a time, so that it can be repeated.
  const time = panel.end || (tab === "table" ? 0 : Date.now() / 1000);
  if (isInstant) return { path: "api/v1/query", form: new URLSearchParams({ query: expr, ...(time && { time: String(time) }) }) };
  return { path: "api/v1/query_range", form: new URLSearchParams({ query: expr, start: String(start), end: String(end), step: String(step), ...(tab === "plan" && { explain: "1", nocache: "1" }) }) };
}

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Partial<Result>>} */
async function raw(panel, signal) {
  const { path, form } = requestOf(panel);
  return { raw: { path, form, ...await answerText(path, form, signal) } };
}

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Partial<Result>>} */
async function promql(panel, signal) {
  const { path, form } = requestOf(panel), json = await post(path, form, signal);
  if (panel.tab === "table") return { rows: await rowsOf(json.data, signal), warnings: notes(json) };
  if (panel.tab === "plan") return { plan: json.data.explain, warnings: notes(json) };
  const start = Number(form.get("start")), end = Number(form.get("end")), step = Number(form.get("step"));
  const times = steps(start, end, step);
  return { times, series: json.data.result.map((/** @type {any} */ found) => alignedSeries(found, start, step, times.length)), warnings: notes(json) };
}

/** @param {any} json @returns {string[]} */
const notes = json => [...(json.warnings ?? []), ...(json.infos ?? [])];

/** @param {number} start @param {number} end @param {number} step */
const steps = (start, end, step) => Array.from({ length: Math.floor((end - start) / step + 1e-9) + 1 }, (_, idx) => start + idx * step);

/** @param {any} found @param {number} start @param {number} step @param {number} length @returns {Series} */
function alignedSeries({ metric, values = [], histograms }, start, step, length) {
  /** @type {(number | null)[]} */
  const points = Array(length).fill(null);
  for (const [time, text] of values) points[Math.round((time - start) / step)] = parse(text);
  /** @type {(Histogram | null)[] | null} */
  let sketches = null;
  if (histograms) {
    sketches = Array(length).fill(null);
    for (const [time, histogram] of histograms) sketches[Math.round((time - start) / step)] = histogram;
  }
  return { labels: metric, text: seriesText(metric), points, histograms: sketches };
}

/** A value in Prometheus's notation; lines have gaps where it is no finite number. @param {string} text */
function parse(text) {
  const value = Number(text);
  return Number.isFinite(value) ? value : null;
}

/** @param {any} data Result of an instant query. @param {AbortSignal} signal @returns {Promise<Row[]>} */
async function rowsOf({ resultType, result }, signal) {
  if (resultType === "scalar" || resultType === "string") return [row({}, resultType, result)];
  return flatMapInTasks(/** @type {any[]} */ (result), ({ metric, value, values, histogram, histograms }) => {
    const text = seriesText(metric);
    const found = [...(value ? [value] : values ?? []).map((/** @type {any} */ sample) => row(metric, text, sample))];
    for (const sample of histogram ? [histogram] : histograms ?? []) found.push(row(metric, text, sample));
    return found;
  }, signal);
}

/** @param {Record<string, string>} labels @param {string} text @param {any} sample @returns {Row} */
function row(labels, text, [time, value]) {
  if (typeof value === "string") return { labels, text, value, number: Number(value.replace("Inf", "Infinity")), time };
  return { labels, text, value: `count ${value.count}, sum ${value.sum}`, number: Number(value.count), time, histogram: value };
}

/** Columns of numbers are series; the table has all of them. @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Partial<Result>>} */
async function influxql(panel, signal) {
  const { path, form } = requestOf(panel), json = await post(path, form, signal);
  const tables = json.results.flatMap((/** @type {any} */ result) => result.series ?? []);
  const warnings = json.results.flatMap((/** @type {any} */ result) => (result.messages ?? []).map((/** @type {any} */ message) => message.text));
  if (panel.tab === "table") return { rows: tables.flatMap(tableRows), warnings };
  /** @type {Timed[]} */
  const found = [];
  for (const { name, tags = {}, columns, values = [] } of tables) {
    if (columns[0] !== "time") continue;
    columns.slice(1).forEach((/** @type {string} */ column, /** @type {number} */ idx) => {
      const labels = { measurement: name, field: column, ...tags };
      const points = values.filter((/** @type {any} */ line) => typeof line[idx + 1] === "number").map((/** @type {any} */ line) => [line[0] / 1000, line[idx + 1]]);
      if (points.length) found.push({ labels, text: `${name}.${column}${Object.keys(tags).length ? seriesText(tags) : ""}`, parts: { head: `${name}.${column}`, labels: tags }, points });
    });
  }
  return { ...joined(found), warnings };
}

/** @param {any} table @returns {Row[]} */
function tableRows({ name, tags = {}, columns, values = [] }) {
  return values.map((/** @type {any[]} */ line) => {
    /** @type {Record<string, string>} */
    const labels = { ...(name && { measurement: name }), ...tags };
    columns.slice(0, -1).forEach((/** @type {string} */ column, /** @type {number} */ idx) => { labels[column] = String(line[idx] ?? ""); });
    const last = line[line.length - 1];
    return { labels, text: Object.values(labels).join(" "), value: String(last ?? ""), number: Number(last), time: columns[0] === "time" ? line[0] / 1000 : 0 };
  });
}

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Partial<Result>>} */
async function graphite(panel, signal) {
  const { path, form } = requestOf(panel), json = await post(path, form, signal);
  const found = json.map((/** @type {any} */ { target, tags = {}, datapoints }) => ({
    labels: { target, ...tags },
    text: target,
    parts: { head: target, labels: {} },
    points: datapoints.filter((/** @type {any} */ point) => point[0] !== null).map((/** @type {any} */ [value, time]) => [time, value]),
  }));
  if (panel.tab !== "table") return joined(found);
  return { rows: found.map((/** @type {any} */ { target, labels, text, points }) => ({ labels: { target: target ?? text, ...labels }, text, value: String(points.at(-1)?.[1] ?? ""), number: points.at(-1)?.[1] ?? NaN, time: points.at(-1)?.[0] ?? 0 })) };
}

/** Points of series with times of their own, at all times of any. @param {Timed[]} found */
function joined(found) {
  const times = [...new Set(found.flatMap(({ points }) => points.map(point => point[0])))].sort((a, b) => a - b);
  const at = new Map(times.map((time, idx) => [time, idx]));
  const series = found.map(({ labels, text, parts, points }) => {
    /** @type {(number | null)[]} */
    const line = Array(times.length).fill(null);
    for (const [time, value] of points) line[/** @type {number} */ (at.get(time))] = value;
    return { labels, text, parts, points: line, histograms: null };
  });
  return { times, series };
}

/** Exemplars of a panel: time, value, labels. @param {Panel} panel @param {AbortSignal} signal @returns {Promise<{ time: number, value: number, labels: Record<string, string> }[]>} */
export async function exemplars(panel, signal) {
  const { start, end } = windowOf(panel);
  const json = await get("api/v1/query_exemplars", { query: panel.expr, start: String(start), end: String(end) }, signal);
  return json.data.flatMap((/** @type {any} */ entry) => entry.exemplars.map((/** @type {any} */ { timestamp, value, labels }) => ({ time: timestamp, value: Number(value), labels: { ...entry.seriesLabels, ...labels } })));
}
