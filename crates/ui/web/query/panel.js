// Parameters of one panel of the query page, with the names of Prometheus's interface (`g0.expr`, ...).
// Pure functions from and to the address.
import { rangeSeconds, rangeText, timeSeconds, timeText } from "../format.js";

/**
 * @typedef {"promql" | "influxql" | "graphite"} Language
 * @typedef {"graph" | "table" | "json" | "raw" | "plan"} Tab
 * @typedef {{ lang: Language, expr: string, db: string, tab: Tab, range: number, end: number, step: number,
 *   mode: "lines" | "stacked" | "heatmap", scale: "linear" | "log", zero: boolean, exemplars: boolean, most: number, fullNames: boolean,
 *   request: "range" | "instant" }} Panel
 *   Seconds; `end` 0 is now, `step` 0 is automatic; `most` series are drawn; `request` is that of the tabs with the answer's text.
 */

const RANGE_DEFAULT = 3600;
/** Range of the start page: short, so that the first samples of a new server are seen. */
const START_RANGE = 300;
/** Points of a range with an automatic step, as in Prometheus's page. */
const POINTS = 250;
export const PANELS_MAX = 20;
/** Series that are drawn unless more are asked for, and the most that can be. */
export const SERIES_DEFAULT = 200, SERIES_MAX = 1000;
/** A gauge that the first self-scrape has; a tenant has no metrics of the server. */
const FIRST_QUERY = "chronolith_head_series", FIRST_QUERY_OF_TENANT = 'count({__name__!=""})';
/** Tenant whose series are the server's own metrics. */
const OWN_TENANT = "anonymous";

/** Returns true on the start page, which has no query of its own. @param {URLSearchParams} params @param {number} idx */
export const isStart = (params, idx) => idx === 0 && !params.has("g0.expr");

/** @param {string} tenant */
const firstQuery = tenant => (tenant === OWN_TENANT ? FIRST_QUERY : FIRST_QUERY_OF_TENANT);

/** @param {URLSearchParams} params @param {number} idx @returns {Panel} */
export function readPanel(params, idx) {
  const field = (/** @type {string} */ name) => params.get(`g${idx}.${name}`) ?? "";
  const lang = field("lang"), tab = field("tab"), mode = field("display_mode"), range = rangeSeconds(field("range_input"));
  const end = timeSeconds(field("end_input") || field("moment_input"), true), step = Number(field("step_input"));
  return {
    lang: lang === "influxql" || lang === "graphite" ? lang : "promql",
    expr: field("expr") || (isStart(params, idx) ? firstQuery(params.get("tenant") ?? OWN_TENANT) : ""),
    db: field("db"),
    // Links of Prometheus 2 say 0 for the graph and 1 for the table.
    tab: tab === "table" || tab === "1" ? "table" : tab === "plan" || tab === "explain" ? "plan" : tab === "json" || tab === "raw" ? tab : "graph",
    range: range > 0 ? range : isStart(params, idx) ? START_RANGE : RANGE_DEFAULT,
    end: end > 0 ? end : 0,
    step: step > 0 ? step : 0,
    mode: mode === "heatmap" ? mode : mode === "stacked" || field("stacked") === "1" ? "stacked" : "lines",
    scale: field("scale") === "log" ? "log" : "linear",
    zero: field("zero") === "1",
    exemplars: field("show_exemplars") === "1",
    fullNames: field("full_names") === "1",
    request: field("request") === "instant" ? "instant" : "range",
    most: Math.min(SERIES_MAX, Math.max(0, Math.floor(Number(field("series_max")))) || SERIES_DEFAULT),
  };
}

/** Parameters of the address for fields of a panel. @param {number} idx @param {Partial<Panel>} fields @returns {Record<string, string | undefined>} */
export function panelParams(idx, fields) {
  /** @type {Record<string, string | undefined>} */
  const params = {};
  const put = (/** @type {string} */ name, /** @type {string | undefined} */ value) => { params[`g${idx}.${name}`] = value; };
  if (fields.expr !== undefined) put("expr", fields.expr);
  if (fields.lang) put("lang", fields.lang === "promql" ? undefined : fields.lang);
  if (fields.db !== undefined) put("db", fields.db);
  if (fields.tab) put("tab", fields.tab);
  if (fields.range) put("range_input", rangeText(fields.range));
  if (fields.end !== undefined) put("end_input", fields.end ? timeText(fields.end, true) : undefined);
  if (fields.step !== undefined) put("step_input", fields.step ? String(fields.step) : undefined);
  if (fields.mode) { put("display_mode", fields.mode === "lines" ? undefined : fields.mode); put("stacked", undefined); }
  if (fields.scale) put("scale", fields.scale === "log" ? "log" : undefined);
  if (fields.zero !== undefined) put("zero", fields.zero ? "1" : undefined);
  if (fields.exemplars !== undefined) put("show_exemplars", fields.exemplars ? "1" : undefined);
  if (fields.fullNames !== undefined) put("full_names", fields.fullNames ? "1" : undefined);
  if (fields.request) put("request", fields.request === "instant" ? "instant" : undefined);
  if (fields.most) put("series_max", fields.most === SERIES_DEFAULT ? undefined : String(fields.most));
  return params;
}

/** @param {URLSearchParams} params */
export function panelCount(params) {
  let count = 1;
  while (count < PANELS_MAX && params.has(`g${count}.expr`)) count += 1;
  return count;
}

/** All parameters with the panel `idx` left out. @param {URLSearchParams} params @param {number} idx */
export function withoutPanel(params, idx) {
  const next = new URLSearchParams();
  for (const [name, value] of params) {
    const number = Number(/^g(\d+)\./.exec(name)?.[1] ?? -1);
    if (number < idx) next.append(name, value);
    else if (number > idx) next.append(name.replace(/^g\d+/, `g${number - 1}`), value);
  }
  return next;
}

/** Times of a range query, at multiples of the step. @param {Panel} panel */
export function windowOf(panel) {
  const step = panel.step || Math.max(1, Math.round(panel.range / POINTS));
  const end = Math.floor((panel.end || Date.now() / 1000) / step) * step;
  return { start: end - panel.range, end, step };
}
