// Requests of the three languages, and their answers as one shape for table and graph.
// Not here: completion; how a result looks.
import { get, post } from "../api.js";
import { seriesText } from "../format.js";
import { flatMapInTasks } from "../tasks.js";
import { windowOf } from "./panel.js";

/**
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {{ count: string, sum: string, buckets?: [number, string, string, string][] }} Histogram
 * @typedef {{ labels: Record<string, string>, text: string, value: string, number: number, time: number, histogram?: Histogram }} Row
 * @typedef {{ labels: Record<string, string>, text: string, points: (number | null)[], histograms: (Histogram | null)[] | null }} Series
 * @typedef {{ rows: Row[] | null, times: number[], series: Series[], plan: any, warnings: string[], ms: number }} Result
 */

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Result>} */
export async function run(panel, signal) {
  const start = performance.now();
  const found = await { promql, influxql, graphite }[panel.lang](panel, signal);
  return { rows: null, times: [], series: [], plan: null, warnings: [], ...found, ms: performance.now() - start };
}

/** @param {Panel} panel @param {AbortSignal} signal @returns {Promise<Partial<Result>>} */
async function promql(panel, signal) {
  if (panel.tab === "table") {
    const json = await post("api/v1/query", { query: panel.expr, ...(panel.end && { time: String(panel.end) }) }, signal);
    return { rows: await rowsOf(json.data, signal), warnings: notes(json) };
  }
  const { start, end, step } = windowOf(panel);
  /** @type {Record<string, string>} */
  const explain = panel.tab === "plan" ? { explain: "1", nocache: "1" } : {};
  const json = await post("api/v1/query_range", { query: panel.expr, start: String(start), end: String(end), step: String(step), ...explain }, signal);
  if (panel.tab === "plan") return { plan: json.data.explain, warnings: notes(json) };
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
  const { start, end, step } = windowOf(panel);
  const text = panel.expr.replaceAll("$timeFilter", `time >= ${start * 1000}ms AND time <= ${end * 1000}ms`).replaceAll("$__interval", `${Math.ceil(step)}s`);
  const json = await post("query", { q: text, db: panel.db, epoch: "ms" }, signal);
  const tables = json.results.flatMap((/** @type {any} */ result) => result.series ?? []);
  const warnings = json.results.flatMap((/** @type {any} */ result) => (result.messages ?? []).map((/** @type {any} */ message) => message.text));
  if (panel.tab === "table") return { rows: tables.flatMap(tableRows), warnings };
  /** @type {{ labels: Record<string, string>, text: string, points: [number, number][] }[]} */
  const found = [];
  for (const { name, tags = {}, columns, values = [] } of tables) {
    if (columns[0] !== "time") continue;
    columns.slice(1).forEach((/** @type {string} */ column, /** @type {number} */ idx) => {
      const labels = { measurement: name, field: column, ...tags };
      const points = values.filter((/** @type {any} */ line) => typeof line[idx + 1] === "number").map((/** @type {any} */ line) => [line[0] / 1000, line[idx + 1]]);
      if (points.length) found.push({ labels, text: `${name}.${column}${Object.keys(tags).length ? seriesText(tags) : ""}`, points });
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
  const { start, end } = windowOf(panel);
  const form = new URLSearchParams({ from: String(Math.floor(start)), until: String(Math.ceil(end)), format: "json", maxDataPoints: "1000" });
  for (const target of panel.expr.split("\n").filter(line => line.trim())) form.append("target", target.trim());
  const json = await post("render", form, signal);
  const found = json.map((/** @type {any} */ { target, tags = {}, datapoints }) => ({
    labels: { target, ...tags },
    text: target,
    points: datapoints.filter((/** @type {any} */ point) => point[0] !== null).map((/** @type {any} */ [value, time]) => [time, value]),
  }));
  if (panel.tab !== "table") return joined(found);
  return { rows: found.map((/** @type {any} */ { target, labels, text, points }) => ({ labels: { target: target ?? text, ...labels }, text, value: String(points.at(-1)?.[1] ?? ""), number: points.at(-1)?.[1] ?? NaN, time: points.at(-1)?.[0] ?? 0 })) };
}

/** Points of series with times of their own, at all times of any. @param {{ labels: Record<string, string>, text: string, points: [number, number][] }[]} found */
function joined(found) {
  const times = [...new Set(found.flatMap(({ points }) => points.map(point => point[0])))].sort((a, b) => a - b);
  const at = new Map(times.map((time, idx) => [time, idx]));
  const series = found.map(({ labels, text, points }) => {
    /** @type {(number | null)[]} */
    const line = Array(times.length).fill(null);
    for (const [time, value] of points) line[/** @type {number} */ (at.get(time))] = value;
    return { labels, text, points: line, histograms: null };
  });
  return { times, series };
}

/** Exemplars of a panel: time, value, labels. @param {Panel} panel @param {AbortSignal} signal @returns {Promise<{ time: number, value: number, labels: Record<string, string> }[]>} */
export async function exemplars(panel, signal) {
  const { start, end } = windowOf(panel);
  const json = await get("api/v1/query_exemplars", { query: panel.expr, start: String(start), end: String(end) }, signal);
  return json.data.flatMap((/** @type {any} */ entry) => entry.exemplars.map((/** @type {any} */ { timestamp, value, labels }) => ({ time: timestamp, value: Number(value), labels: { ...entry.seriesLabels, ...labels } })));
}
