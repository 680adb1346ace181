// The plain page: one instant query and a table of its result, without third parties.
// Not here: the interface with a bundle (app.js).

/** @param {string} id @returns {any} */
const $ = id => document.getElementById(id);
const FIRST_QUERY = "sum by (code) (rate(chronolith_http_request_duration_seconds_count[1m]))";
const ROWS_MAX = 5000;
/** Login of this tab, as the interface keeps it. */
const LOGIN = "login";

/** @returns {Record<string, string>} The second header keeps the browser from asking for a password by itself. */
function loginHeaders() {
  const login = sessionStorage.getItem(LOGIN) ?? "";
  const header = login.includes(":") ? "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(login))) : `Bearer ${login}`;
  return { ...(login && { Authorization: header }), "X-Requested-With": "XMLHttpRequest" };
}

/** @param {Record<string, string>} labels */
function seriesText({ __name__ = "", ...labels }) {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}=${JSON.stringify(value)}`);
  return __name__ + (pairs.length || !__name__ ? `{${pairs.join(", ")}}` : "");
}

/** @param {any} sample One element of a result. @returns {string} */
function valueText({ value, values, histogram, histograms }) {
  if (value) return value[1];
  if (histogram) return `count ${histogram[1].count}, sum ${histogram[1].sum}`;
  const texts = (values ?? []).map((/** @type {any} */ [time, text]) => `${text} @${time}`);
  return [...texts, ...(histograms ?? []).map((/** @type {any} */ [time, { count }]) => `count ${count} @${time}`)].join("\n");
}

/** @param {any} data Result of a query. @returns {[string, string][]} Series and value per row. */
function rowsOf({ resultType, result }) {
  if (resultType === "scalar" || resultType === "string") return [[resultType, result[1]]];
  return result.map((/** @type {any} */ sample) => [seriesText(sample.metric), valueText(sample)]);
}

/** @param {[string, string][]} rows */
function show(rows) {
  $("rows").replaceChildren(...rows.slice(0, ROWS_MAX).map(cells => {
    const row = document.createElement("tr");
    row.append(...cells.map(text => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  }));
  $("table").hidden = !rows.length;
}

async function run() {
  const query = $("query").value, tenant = $("tenant").value;
  history.replaceState(null, "", "?" + new URLSearchParams({ "g0.expr": query, ...(tenant && { tenant }) }));
  /** @type {Record<string, string>} */
  const headers = { ...(tenant && { "X-Scope-OrgID": tenant }), ...loginHeaders() };
  let text = "", failed = true;
  /** @type {[string, string][]} */
  let rows = [];
  try {
    const answer = await fetch("api/v1/query", { method: "POST", body: new URLSearchParams({ query }), headers });
    if (answer.status === 401) $("login").hidden = false;
    const json = await answer.json();
    if (json.status === "success") {
      rows = rowsOf(json.data);
      failed = false;
      text = [`${rows.length} rows`, rows.length > ROWS_MAX && `the first ${ROWS_MAX} are shown`, ...(json.warnings ?? []), ...(json.infos ?? [])].filter(Boolean).join(", ");
    } else {
      text = json.error;
    }
  } catch (error) {
    text = String(error);
  }
  show(rows);
  $("state").textContent = text;
  $("state").className = failed ? "failed" : "";
}

const parts = new URLSearchParams(location.search);
$("query").value = parts.get("g0.expr") ?? FIRST_QUERY;
$("tenant").value = parts.get("tenant") ?? "";
$("form").addEventListener("submit", (/** @type {Event} */ event) => { event.preventDefault(); run(); });
$("login").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  sessionStorage.setItem(LOGIN, $("token").value);
  $("login").hidden = true;
  run();
});
$("query").addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); run(); }
});
run();
