// Heatmap of histograms: one canvas per series, a column per time, a cell per bucket, all buckets of equal height.
// Not here: which buckets there are (buckets.js).
import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { count, short, timeText } from "../format.js";
import { edgesOf, quantileAt, sketches } from "./buckets.js";
import { look } from "./colours.js";
import { roundTimes, timeTicks } from "../ticks.js";

const SKETCHES_MAX = 12;
const LEFT = 64, BOTTOM = 34, TOP = 6;
/** Room of one text of the time axis. */
const TICK_PX = 90, LINE_PX = 14;
/** Distance of the texts of two bounds, and letters of one. */
const EDGE_APART_PX = 20, EDGE_LETTERS_MAX = 8;
const QUANTILES = /** @type {[number, number[]][]} */ ([[0.5, []], [0.9, [6, 3]], [0.99, [2, 3]]]);

/** @param {{ times: number[], series: import("./languages.js").Series[], utc: boolean, step: number }} props */
export function Heatmap({ times, series, utc, step }) {
  const found = useMemo(() => sketches(times, series), [times, series]);
  if (!found.length) return html`<p class="empty">No histograms: a heatmap needs native histograms, or buckets with the label <code>le</code>, as in <code>sum by (le) (rate(x_bucket[5m]))</code>.</p>`;
  return html`<div class=${found.length > 1 ? "sketches" : ""}>
    ${found.slice(0, SKETCHES_MAX).map(sketch => html`<${Sketch} key=${sketch.text} sketch=${sketch} utc=${utc} step=${step} height=${found.length > 1 ? 200 : 320} />`)}</div>
    <p class="soft">Lines: median, p90 (dashed), p99 (dotted).${found.length > SKETCHES_MAX ? ` ${SKETCHES_MAX} of ${count(found.length)} histograms are drawn.` : ""}</p>`;
}

/** @param {{ sketch: import("./buckets.js").Sketch, utc: boolean, step: number, height: number }} props */
function Sketch({ sketch, utc, step, height }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const [scheme, setScheme] = useState(0);
  const [at, setAt] = useState("");
  const edges = useMemo(() => edgesOf(sketch.columns), [sketch]);
  const first = sketch.columns[0]?.time ?? 0, last = (sketch.columns.at(-1)?.time ?? 0) + step;
  const x = (/** @type {number} */ time) => LEFT + ((time - first) / (last - first)) * (width - LEFT);
  const y = (/** @type {number} */ edge) => height - BOTTOM - (edge / Math.max(1, edges.length - 1)) * (height - BOTTOM - TOP);

  useEffect(() => {
    const redraw = () => setScheme(now => now + 1);
    const observer = new ResizeObserver(() => setWidth(canvas.current?.clientWidth ?? 0));
    if (canvas.current) observer.observe(canvas.current);
    const query = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("scheme", redraw);
    query.addEventListener("change", redraw);
    return () => { observer.disconnect(); removeEventListener("scheme", redraw); query.removeEventListener("change", redraw); };
  }, []);
  useEffect(() => { if (canvas.current && width) draw(canvas.current, { sketch, edges, x, y, width, height, step, utc }); }, [sketch, width, scheme, utc]);

  const hover = (/** @type {any} */ event) => {
    const time = first + ((event.offsetX - LEFT) / (width - LEFT)) * (last - first);
    const column = sketch.columns.find(found => time >= found.time && time < found.time + step);
    const cell = column?.cells.find(({ lower, upper }) => event.offsetY <= y(edges.indexOf(lower)) && event.offsetY > y(edges.indexOf(upper)));
    setAt(!column || !cell ? "" : `${timeText(column.time, utc)}  (${short(cell.lower)}, ${short(cell.upper)}]  ${short(cell.count)} of ${short(column.total)}, ${((100 * cell.count) / (column.total || 1)).toFixed(1)} %`);
  };
  return html`<figure><figcaption class="mono">${sketch.text}</figcaption>
    <canvas ref=${canvas} class="heat" role="img" aria-label=${`Heatmap of ${sketch.text}; the table tab has its values`} style=${{ height: `${height}px` }} onPointerMove=${hover} onPointerLeave=${() => setAt("")}></canvas>
    <output class="soft mono">${at || " "}</output></figure>`;
}

/** @param {HTMLCanvasElement} canvas @param {any} wanted */
function draw(canvas, { sketch, edges, x, y, width, height, step, utc }) {
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  canvas.width = width * devicePixelRatio;
  canvas.height = height * devicePixelRatio;
  ctx.scale(devicePixelRatio, devicePixelRatio);
  ctx.clearRect(0, 0, width, height);
  let most = 0;
  for (const { cells } of sketch.columns) for (const { count } of cells) most = Math.max(most, Math.abs(count));
  const at = new Map(edges.map((/** @type {number} */ edge, /** @type {number} */ idx) => [edge, idx]));
  ctx.fillStyle = look("--heat");
  for (const { time, cells } of sketch.columns) {
    for (const { lower, upper, count } of cells) {
      if (!count) continue;
      ctx.globalAlpha = 0.1 + 0.9 * Math.sqrt(Math.abs(count) / most);
      const top = y(at.get(upper)), left = x(time);
      ctx.fillRect(left, top, Math.max(1, x(time + step) - left), Math.max(1, y(at.get(lower)) - top));
    }
  }
  ctx.globalAlpha = 1;
  lines(ctx, sketch.columns, edges, x, y, step);
  labels(ctx, sketch.columns, edges, x, y, width, height, utc);
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./buckets.js").Column[]} columns @param {number[]} edges @param {(time: number) => number} x @param {(edge: number) => number} y @param {number} step */
function lines(ctx, columns, edges, x, y, step) {
  ctx.strokeStyle = look("--ink");
  for (const [quantile, dash] of QUANTILES) {
    ctx.setLineDash(dash);
    ctx.beginPath();
    for (const column of columns) {
      const found = quantileAt(column, edges, quantile);
      if (found !== null) { ctx.lineTo(x(column.time), y(found)); ctx.lineTo(x(column.time + step), y(found)); }
    }
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

/** A bound of a bucket in the room at the left of the cells. @param {number} edge */
export const edgeText = edge => { const text = short(edge); return text.length > EDGE_LETTERS_MAX ? short(Number(edge.toPrecision(2))) : text; };

/** Which edges have a text, and where, so that no two touch. @param {number[]} heights From the bottom up. @param {number} top @param {number} bottom @returns {{ idx: number, at: number }[]} */
export function edgeRows(heights, top, bottom) {
  /** @type {{ idx: number, at: number }[]} */
  const rows = [];
  heights.forEach((height, idx) => {
    const at = Math.min(bottom, Math.max(top, height)), last = rows.at(-1);
    if (!last || at <= last.at - EDGE_APART_PX) rows.push({ idx, at });
  });
  return rows;
}

/** @param {CanvasRenderingContext2D} ctx @param {import("./buckets.js").Column[]} columns @param {number[]} edges @param {(time: number) => number} x @param {(edge: number) => number} y @param {number} width @param {number} height @param {boolean} utc */
function labels(ctx, columns, edges, x, y, width, height, utc) {
  ctx.fillStyle = look("--soft");
  ctx.font = "12px system-ui";
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  for (const { idx, at } of edgeRows(edges.map((_, idx) => y(idx)), 8, height - BOTTOM - 4)) ctx.fillText(edgeText(edges[idx] ?? 0), LEFT - 6, at, LEFT - 8);
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  const from = columns[0]?.time ?? 0, to = columns.at(-1)?.time ?? 0;
  const { times, apart } = roundTimes(from, to, (width - LEFT) / TICK_PX, utc);
  timeTicks(times, apart, utc).forEach((text, idx) => {
    const at = Math.max(LEFT + TICK_PX / 6, Math.min(width - TICK_PX / 3, x(times[idx] ?? 0)));
    text.split("\n").forEach((line, row) => ctx.fillText(line, at, height - BOTTOM + 4 + row * LINE_PX));
  });
}
