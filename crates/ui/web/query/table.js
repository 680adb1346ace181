// Rows of a result as a table: sort, filter, copy.
// Not here: which rows are in the document (virtual.js).
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { count, short } from "../format.js";
import { sortInTasks } from "../tasks.js";
import { Rows } from "../virtual.js";

/** @typedef {import("./languages.js").Row} Row */

/** More rows than these are sorted in short tasks. */
const SORTED_AT_ONCE = 2000;
const COLUMNS_MAX = 12;

/** Label names, the metric first, in the order of their first use. @param {Row[]} rows */
function columnsOf(rows) {
  /** @type {Set<string>} */
  const names = new Set();
  for (const { labels } of rows) for (const name in labels) names.add(name);
  const found = [...names];
  return found.includes("__name__") ? ["__name__", ...found.filter(name => name !== "__name__")] : found;
}

/** Rows with all words of the filter. @param {Row[]} rows @param {string} filter */
function fitting(rows, filter) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? rows.filter(row => { const text = `${row.text} ${row.value}`.toLowerCase(); return words.every(word => text.includes(word)); }) : rows;
}

/** Order of rows by a label or, with `value`, by value. @param {string} sort @param {boolean} isDown @returns {(a: Row, b: Row) => number} */
function orderBy(sort, isDown) {
  const sign = isDown ? -1 : 1;
  if (sort === "value") return (a, b) => (Number.isNaN(a.number) ? (Number.isNaN(b.number) ? 0 : 1) : Number.isNaN(b.number) ? -1 : sign * (a.number - b.number));
  const { compare } = new Intl.Collator("en", { numeric: true });
  return (a, b) => sign * compare(a.labels[sort] ?? "", b.labels[sort] ?? "");
}

/** Rows that fit the filter, sorted. @param {Row[]} rows @param {string} filter @param {string} sort @param {boolean} isDown */
export function arranged(rows, filter, sort, isDown) {
  const found = fitting(rows, filter);
  return sort ? found.slice().sort(orderBy(sort, isDown)) : found;
}

/** Rows that fit the filter, in their order; of many rows, the order before until they are sorted. @param {Row[]} rows @param {string} filter @param {{ by: string, isDown: boolean }} sort */
function useArranged(rows, filter, sort) {
  const isLong = rows.length > SORTED_AT_ONCE && sort.by !== "";
  const [sorted, setSorted] = useState({ of: rows, list: rows });
  useEffect(() => {
    if (!isLong) return;
    const stop = new AbortController();
    sortInTasks(rows, orderBy(sort.by, sort.isDown), stop.signal).then(found => { if (!stop.signal.aborted) setSorted({ of: rows, list: found }); }, () => {});
    return () => stop.abort();
  }, [rows, sort, isLong]);
  // Sorted rows of an earlier result are not shown for this one.
  const from = isLong && sorted.of === rows ? sorted.list : rows;
  return useMemo(() => (isLong ? fitting(from, filter) : arranged(rows, filter, sort.by, sort.isDown)), [rows, from, filter, sort, isLong]);
}

const quoted = (/** @type {string} */ text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** @param {Row[]} rows @param {string[]} columns */
export const csv = (rows, columns) => [[...columns, "value", "time"], ...rows.map(row => [...columns.map(name => row.labels[name] ?? ""), row.value, String(row.time)])].map(line => line.map(quoted).join(",")).join("\n") + "\n";

/** @param {{ rows: Row[], lang: string }} props */
export function Table({ rows, lang }) {
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState({ by: "", isDown: false });
  const [note, setNote] = useState("");
  const [open, setOpen] = useState(/** @type {Row | null} */ (null));
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const shown = useArranged(rows, filter, sort);
  const wide = columns.length <= COLUMNS_MAX ? columns : [];

  const copy = async (/** @type {string} */ text, /** @type {string} */ what) => {
    try { await navigator.clipboard.writeText(text); setNote(`${what} copied`); } catch { setNote("the browser does not allow copying"); }
  };
  const sortBy = (/** @type {string} */ by) => setSort(now => (now.by === by ? { by, isDown: !now.isDown } : { by, isDown: by === "value" }));
  const head = (/** @type {string} */ by, /** @type {string} */ text) => html`<th aria-sort=${sort.by !== by ? "none" : sort.isDown ? "descending" : "ascending"} key=${by}>
    <button onClick=${() => sortBy(by)}>${text}${sort.by === by ? (sort.isDown ? " ↓" : " ↑") : ""}</button></th>`;
  const mark = lang === "promql";
  const cells = (/** @type {Row} */ row) => html`
    ${wide.length || !columns.length ? wide.map(name => html`<td key=${name} title=${row.labels[name] ?? ""}>${row.labels[name] ?? ""}</td>`) : html`<td title=${row.text}>${row.text}</td>`}
    <td class="value" title=${row.value}>${row.histogram ? html`<button class="link" onClick=${() => setOpen(row)}>${row.value}</button>` : row.value}</td>`;

  return html`
    <div class="bar">
      <input type="search" aria-label="Filter rows" placeholder="Filter rows" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      <span class="soft">${filter ? `${count(shown.length)} of ${count(rows.length)}` : count(rows.length)} rows</span>
      <button class="quiet" onClick=${() => copy(csv(shown, columns), "CSV")}>Copy CSV</button>
      ${mark && html`<button class="quiet" onClick=${() => copy([...new Set(shown.map(row => row.text))].join("\n"), "Selectors")}>Copy selectors</button>`}
      <span class="soft" role="status">${note}</span>
    </div>
    <${Rows} length=${shown.length} label="Result" top=${filter}
      head=${html`${wide.length || !columns.length ? wide.map(name => head(name, name === "__name__" ? "metric" : name)) : html`<th>series</th>`}${head("value", "value")}`}
      row=${(/** @type {number} */ idx) => cells(/** @type {Row} */ (shown[idx]))} />
    ${open?.histogram && html`<${Buckets} row=${open} onClose=${() => setOpen(null)} />`}`;
}

const BRACKETS = ["(]", "[)", "()", "[]"];

/** Buckets of one native histogram. @param {{ row: Row, onClose: () => void }} props */
function Buckets({ row, onClose }) {
  const buckets = row.histogram?.buckets ?? [];
  const most = Math.max(...buckets.map(bucket => Math.abs(Number(bucket[3]))), 0) || 1;
  return html`<section class="buckets" aria-label="Buckets">
    <div class="bar"><b class="mono">${row.text}</b><button class="quiet" onClick=${onClose}>Close</button></div>
    <table><thead><tr><th>bucket</th><th>count</th><th>share</th></tr></thead><tbody>
    ${buckets.map(([kind, lower, upper, number]) => html`<tr key=${lower + upper}>
      <td>${BRACKETS[kind]?.[0]}${short(Number(lower))}, ${short(Number(upper.replace("Inf", "Infinity")))}${BRACKETS[kind]?.[1]}</td><td class="value">${number}</td>
      <td><meter min="0" max="1" value=${Math.abs(Number(number)) / most} aria-label="share of the largest bucket"></meter></td></tr>`)}
    </tbody></table></section>`;
}
