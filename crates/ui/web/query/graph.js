// Lines of a range query: uPlot, a tip with the nearest series, and which of them are drawn.
// Not here: requests; the legend (legend.js); heatmaps (heatmap.js).
import { html, uPlot, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { count, short, timeText } from "../format.js";
import { timeTicks } from "../ticks.js";
import { colourOf, dashOf, look } from "./colours.js";
import { Legend } from "./legend.js";
import { drawLevel, rangeWith } from "./level.js";
import { shortNames } from "./names.js";
import { SERIES_DEFAULT, SERIES_MAX } from "./panel.js";

/**
 * @typedef {Series & { idx: number, name: string }} Line Its place among those that are drawn, and its name without common labels.
 * @typedef {import("./languages.js").Series} Series
 * @typedef {import("./panel.js").Panel} Panel
 * @typedef {import("./level.js").Level} Level
 * @typedef {{ time: number, value: number, labels: Record<string, string> }} Exemplar
 */

const SERIES_CHOICES = [50, SERIES_DEFAULT, SERIES_MAX];
/** At least this, and two fifths of the window. */
const HEIGHT_MIN = 320, HEIGHT_PART = 0.4;
/** Height of a graph in a list. */
const LOW_PX = 220;
const heightOf = (/** @type {boolean} */ isLow) => (isLow ? LOW_PX : Math.max(HEIGHT_MIN, Math.round(innerHeight * HEIGHT_PART)));
const TIP_DIGITS = 5;
const TIP_ROWS = 8;
const ORDERS = { first: "the first", largest: "the largest", smallest: "the smallest" };

/** The series that are drawn: those with the filter in their text, in the order that was chosen. @param {Series[]} series @param {string} filter @param {string} order @param {number} [most] */
export function chosen(series, filter, order, most = SERIES_DEFAULT) {
  const fitting = filter ? series.filter(({ text }) => text.toLowerCase().includes(filter.toLowerCase())) : series;
  if (fitting.length <= most || order === "first") return fitting.slice(0, most);
  const sign = order === "largest" ? -1 : 1;
  const mean = (/** @type {Series} */ { points }) => { let sum = 0, n = 0; for (const value of points) if (value !== null) { sum += value; n += 1; } return n ? sum / n : -sign * Infinity; };
  return fitting.map(line => ({ line, by: mean(line) })).sort((a, b) => sign * (a.by - b.by)).slice(0, most).map(({ line }) => line);
}

/** Sums from the first series on; gaps count as nothing. @param {(number | null)[][]} lines */
export function stacked(lines) {
  const sums = (lines[0] ?? []).map(() => 0);
  return lines.map(line => line.map((value, idx) => (value === null ? null : (sums[idx] = (sums[idx] ?? 0) + value))));
}

/** @param {{ times: number[], series: Series[], panel: Panel, utc: boolean, marks: Exemplar[], level?: Level | null, isLow?: boolean, onZoom: (start: number, end: number) => void, onChange: (fields: Partial<Panel>) => void }} props */
export function Graph({ times, series, panel, utc, marks, level = null, isLow = false, onZoom, onChange }) {
  const [filter, setFilter] = useState("");
  const [order, setOrder] = useState("first");
  const [hidden, setHidden] = useState(/** @type {Set<string>} */ (new Set()));
  const [scheme, setScheme] = useState(0);
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const tip = useRef(/** @type {HTMLDivElement | null} */ (null));
  const shown = useMemo(() => chosen(series, filter, order, panel.most), [series, filter, order, panel.most]);
  const { names, common } = useMemo(() => shortNames(shown), [shown]);
  const lines = useMemo(() => shown.map((line, idx) => ({ ...line, idx, name: names[idx] ?? line.text })).filter(({ text }) => !hidden.has(text)), [shown, names, hidden]);

  useEffect(() => {
    const redraw = () => setScheme(now => now + 1);
    const query = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("scheme", redraw);
    query.addEventListener("change", redraw);
    return () => { removeEventListener("scheme", redraw); query.removeEventListener("change", redraw); };
  }, []);

  useEffect(() => {
    const box = host.current;
    if (!box || !times.length) return;
    const plot = new uPlot(options({ box, tip: tip.current, lines, panel, utc, marks, level, isLow, onZoom }), dataOf(times, lines, panel), box);
    const observer = new ResizeObserver(() => { if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: heightOf(isLow) }); });
    observer.observe(box);
    return () => { observer.disconnect(); plot.destroy(); };
  }, [times, lines, panel.mode, panel.scale, panel.zero, utc, marks, level, isLow, scheme]);

  const isolate = (/** @type {string} */ text) => setHidden(now => (now.size === shown.length - 1 && !now.has(text) ? new Set() : new Set(shown.map(line => line.text).filter(other => other !== text))));
  const toggle = (/** @type {string} */ text) => setHidden(now => { const next = new Set(now); if (!next.delete(text)) next.add(text); return next; });

  return html`
    ${series.length > Math.min(panel.most, SERIES_DEFAULT) && html`<div class="bar"><span>${count(shown.length)} of ${count(series.length)} series are drawn:</span>
      <select aria-label="Which series" value=${order} onChange=${(/** @type {any} */ event) => setOrder(event.target.value)}>${Object.entries(ORDERS).map(([name, text]) => html`<option key=${name} value=${name}>${text}</option>`)}</select>
      <select aria-label="Most series" value=${panel.most} onChange=${(/** @type {any} */ event) => onChange({ most: Number(event.target.value) })}>${SERIES_CHOICES.map(most => html`<option key=${most} value=${most}>at most ${count(most)}</option>`)}</select>
      <input type="search" aria-label="Choose series" placeholder="with this text" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} /></div>`}
    <div class=${isLow ? "plot low" : "plot"} ref=${host} role="img" aria-label=${`Graph of ${count(lines.length)} series; the table tab has their values`}><div class="tip" ref=${tip} hidden></div></div>
    <${Legend} lines=${shown} names=${panel.fullNames ? shown.map(line => line.text) : names} common=${common} isFull=${panel.fullNames} hidden=${hidden} onToggle=${toggle} onIsolate=${isolate} onFull=${(/** @type {boolean} */ fullNames) => onChange({ fullNames })} />`;
}

/** @param {number[]} times @param {Series[]} lines @param {Panel} panel @returns {any} */
function dataOf(times, lines, panel) {
  const points = lines.map(line => (panel.scale === "log" ? line.points.map(value => (value !== null && value > 0 ? value : null)) : line.points));
  return [times, ...(panel.mode === "stacked" ? stacked(points) : points)];
}

/** @param {{ box: HTMLElement, tip: HTMLElement | null, lines: Line[], panel: Panel, utc: boolean, marks: Exemplar[], level: Level | null, isLow: boolean, onZoom: (start: number, end: number) => void }} wanted @returns {any} */
function options({ box, tip, lines, panel, utc, marks, level, isLow, onZoom }) {
  const axis = { stroke: look("--soft"), grid: { stroke: look("--grid"), width: 1 }, ticks: { stroke: look("--grid"), width: 1 }, font: "12px system-ui" };
  const isStacked = panel.mode === "stacked";
  return {
    width: box.clientWidth || 600, height: heightOf(isLow), legend: { show: false },
    cursor: { points: { show: false }, drag: { x: true, y: false, setScale: false } },
    scales: { x: { time: true }, y: { distr: panel.scale === "log" ? 3 : 1, range: panel.scale === "log" ? undefined : (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => yRange(...rangeWith(low, high, level), panel.zero || isStacked) } },
    axes: [{ ...axis, space: 90, values: (/** @type {any} */ _, /** @type {number[]} */ ticks, /** @type {any} */ __, /** @type {any} */ ___, /** @type {number} */ apart) => timeTicks(ticks, apart, utc) }, { ...axis, size: 64, values: (/** @type {any} */ _, /** @type {number[]} */ ticks) => ticks.map(value => (value == null ? "" : short(value))) }],
    series: [{}, ...lines.map((line, at) => ({
      label: line.text, stroke: colourOf(line.idx), dash: dashOf(line.idx), width: lines.length > 40 ? 1 : 1.5, spanGaps: false, points: { show: false },
      ...(isStacked && at === 0 && { fill: colourOf(line.idx) + "55" }),
    }))],
    bands: isStacked ? lines.slice(1).map((line, at) => ({ series: [at + 2, at + 1], fill: colourOf(line.idx) + "55" })) : [],
    hooks: {
      setSelect: [(/** @type {any} */ plot) => { if (plot.select.width > 3) onZoom(plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")); plot.setSelect({ width: 0, height: 0, left: 0, top: 0 }, false); }],
      setCursor: [(/** @type {any} */ plot) => { if (tip) showTip(plot, tip, lines, utc, marks); }],
      draw: [(/** @type {any} */ plot) => { drawMarks(plot, marks); drawLevel(plot, level); }],
    },
  };
}

/** @param {number | null} low @param {number | null} high @param {boolean} fromZero @returns {[number, number]} */
function yRange(low, high, fromZero) {
  let from = low ?? 0, to = high ?? 1;
  if (fromZero) { from = Math.min(0, from); to = Math.max(0, to); }
  if (from === to) { const by = Math.abs(from) * 0.1 || 1; from -= fromZero && from === 0 ? 0 : by; to += by; }
  const room = (to - from) * 0.05;
  return [fromZero && from === 0 ? 0 : from - room, to + room];
}

/** Values at the cursor, those nearest to it, from top to bottom. @param {any} plot @param {HTMLElement} tip @param {Line[]} lines @param {boolean} utc @param {Exemplar[]} marks */
function showTip(plot, tip, lines, utc, marks) {
  const { left, top, idx } = plot.cursor;
  tip.hidden = idx == null || left < 0;
  if (tip.hidden) return;
  /** @type {{ line: Line, y: number, far: number }[]} */
  const near = [];
  lines.forEach((line, at) => {
    const value = plot.data[at + 1][idx];
    if (value != null) { const y = plot.valToPos(value, "y"); near.push({ line, y, far: Math.abs(y - top) }); }
  });
  near.sort((a, b) => a.far - b.far);
  const rows = near.slice(0, TIP_ROWS).sort((a, b) => a.y - b.y).map(({ line }) => tipRow(colourOf(line.idx), line.name, digits(line.points[idx] ?? null)));
  if (near.length > TIP_ROWS) rows.push(tipRow("transparent", `and ${count(near.length - TIP_ROWS)} more`, ""));
  const mark = marks.find(({ time, value }) => Math.hypot(plot.valToPos(time, "x") - left, plot.valToPos(value, "y") - top) < 8);
  if (mark) rows.unshift(tipRow(look("--bad"), `exemplar ${Object.entries(mark.labels).map(pair => pair.join("=")).join(" ")}`, String(mark.value)));
  tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: timeText(plot.data[0][idx], utc) }), ...rows);
  const flip = left > plot.bbox.width / devicePixelRatio / 2, x = left + plot.bbox.left / devicePixelRatio;
  Object.assign(tip.style, { left: flip ? "auto" : `${x + 14}px`, right: flip ? `${plot.width - x + 14}px` : "auto" });
}

/** @param {number | null} value */
const digits = value => (value === null ? "" : Number.isFinite(value) ? String(Number(value.toPrecision(TIP_DIGITS))) : String(value));

/** @param {string} colour @param {string} text @param {string} value */
function tipRow(colour, text, value) {
  const row = document.createElement("div"), swatch = document.createElement("i");
  swatch.style.background = colour;
  row.append(swatch, Object.assign(document.createElement("span"), { textContent: text }), Object.assign(document.createElement("b"), { textContent: value }));
  return row;
}

/** Exemplars as diamonds. @param {any} plot @param {Exemplar[]} marks */
function drawMarks(plot, marks) {
  const { ctx } = plot, size = 4 * devicePixelRatio;
  ctx.save();
  ctx.fillStyle = look("--bad");
  for (const { time, value } of marks) {
    const x = plot.valToPos(time, "x", true), y = plot.valToPos(value, "y", true);
    if (x < plot.bbox.left || x > plot.bbox.left + plot.bbox.width || y < plot.bbox.top || y > plot.bbox.top + plot.bbox.height) continue;
    ctx.beginPath();
    ctx.moveTo(x, y - size); ctx.lineTo(x + size, y); ctx.lineTo(x, y + size); ctx.lineTo(x - size, y);
    ctx.fill();
  }
  ctx.restore();
}
