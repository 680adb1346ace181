// Rows of a result: only those in view are in the document. Sort, filter, copy.
import { html, useMemo, useRef, useState } from "../lib/ui.js";
import { count, short } from "../format.js";

/** @typedef {import("./languages.js").Row} Row */

const ROW_PX = 25;
const VIEW_PX = 500;
const EXTRA_ROWS = 10;
const COLUMNS_MAX = 12;

/** Label names, the metric first, in the order of their first use. @param {Row[]} rows */
function columnsOf(rows) {
  /** @type {Set<string>} */
  const names = new Set();
  for (const { labels } of rows) for (const name in labels) names.add(name);
  const found = [...names];
  return found.includes("__name__") ? ["__name__", ...found.filter(name => name !== "__name__")] : found;
}

/** Rows that fit the filter, sorted. @param {Row[]} rows @param {string} filter @param {string} sort @param {boolean} isDown */
export function arranged(rows, filter, sort, isDown) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length ? rows.filter(row => { const text = `${row.text} ${row.value}`.toLowerCase(); return words.every(word => text.includes(word)); }) : rows.slice();
  if (!sort) return found;
  const sign = isDown ? -1 : 1;
  if (sort === "value") return found.sort((a, b) => sign * (Number.isNaN(a.number) ? 1 : Number.isNaN(b.number) ? -1 : a.number - b.number));
  const { compare } = new Intl.Collator("en", { numeric: true });
  return found.sort((a, b) => sign * compare(a.labels[sort] ?? "", b.labels[sort] ?? ""));
}

const quoted = (/** @type {string} */ text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** @param {Row[]} rows @param {string[]} columns */
export const csv = (rows, columns) => [[...columns, "value", "time"], ...rows.map(row => [...columns.map(name => row.labels[name] ?? ""), row.value, String(row.time)])].map(line => line.map(quoted).join(",")).join("\n") + "\n";

/** @param {{ rows: Row[], lang: string }} props */
export function Table({ rows, lang }) {
  const [filter, setFilter] = useState("");
  const [sort, setSort] = useState({ by: "", isDown: false });
  const [top, setTop] = useState(0);
  const [note, setNote] = useState("");
  const [open, setOpen] = useState(/** @type {Row | null} */ (null));
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const columns = useMemo(() => columnsOf(rows), [rows]);
  const shown = useMemo(() => arranged(rows, filter, sort.by, sort.isDown), [rows, filter, sort]);
  const first = Math.max(0, Math.floor(top / ROW_PX) - EXTRA_ROWS);
  const last = Math.min(shown.length, first + Math.ceil(VIEW_PX / ROW_PX) + 2 * EXTRA_ROWS);
  const wide = columns.length <= COLUMNS_MAX ? columns : [];

  const copy = async (/** @type {string} */ text, /** @type {string} */ what) => {
    try { await navigator.clipboard.writeText(text); setNote(`${what} copied`); } catch { setNote("the browser does not allow copying"); }
  };
  const sortBy = (/** @type {string} */ by) => setSort(now => (now.by === by ? { by, isDown: !now.isDown } : { by, isDown: by === "value" }));
  const head = (/** @type {string} */ by, /** @type {string} */ text) => html`<th aria-sort=${sort.by !== by ? "none" : sort.isDown ? "descending" : "ascending"} key=${by}>
    <button onClick=${() => sortBy(by)}>${text}${sort.by === by ? (sort.isDown ? " ↓" : " ↑") : ""}</button></th>`;
  const mark = lang === "promql";

  return html`
    <div class="bar">
      <input type="search" aria-label="Filter rows" placeholder="Filter rows" value=${filter} onInput=${(/** @type {any} */ event) => { setFilter(event.target.value); if (box.current) box.current.scrollTop = 0; }} />
      <span class="soft">${filter ? `${count(shown.length)} of ${count(rows.length)}` : count(rows.length)} rows</span>
      <button class="quiet" onClick=${() => copy(csv(shown, columns), "CSV")}>Copy CSV</button>
      ${mark && html`<button class="quiet" onClick=${() => copy([...new Set(shown.map(row => row.text))].join("\n"), "Selectors")}>Copy selectors</button>`}
      <span class="soft" role="status">${note}</span>
    </div>
    <div class="rows" ref=${box} tabindex="0" role="region" aria-label="Result" onScroll=${(/** @type {any} */ event) => setTop(event.target.scrollTop)}>
      <table>
        <thead><tr>${wide.length || !columns.length ? wide.map(name => head(name, name === "__name__" ? "metric" : name)) : html`<th>series</th>`}${head("value", "value")}</tr></thead>
        <tbody>
          ${first > 0 && html`<tr class="gap" aria-hidden="true" key="above"><td style=${{ height: `${first * ROW_PX}px` }}></td></tr>`}
          ${shown.slice(first, last).map((row, idx) => html`<tr key=${first + idx}>
            ${wide.length || !columns.length ? wide.map(name => html`<td key=${name} title=${row.labels[name] ?? ""}>${row.labels[name] ?? ""}</td>`) : html`<td title=${row.text}>${row.text}</td>`}
            <td class="value" title=${row.value}>${row.histogram ? html`<button class="link" onClick=${() => setOpen(row)}>${row.value}</button>` : row.value}</td></tr>`)}
          ${last < shown.length && html`<tr class="gap" aria-hidden="true" key="below"><td style=${{ height: `${(shown.length - last) * ROW_PX}px` }}></td></tr>`}
        </tbody>
      </table>
    </div>
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
