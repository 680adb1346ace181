// Buckets of native and classic histograms as columns of cells. Pure functions.
// Not here: drawing (heatmap.js).

/**
 * @typedef {import("./languages.js").Series} Series
 * @typedef {{ lower: number, upper: number, count: number }} Cell
 * @typedef {{ time: number, cells: Cell[], total: number }} Column
 * @typedef {{ text: string, columns: Column[] }} Sketch One histogram over time.
 */

const toNumber = (/** @type {string} */ text) => Number(text.replace("Inf", "Infinity"));

/** @param {number} time @param {Cell[]} cells @returns {Column} */
const column = (time, cells) => ({ time, cells, total: cells.reduce((sum, cell) => sum + cell.count, 0) });

/** Histograms of a result: native ones, then those of buckets with `le`. @param {number[]} times @param {Series[]} series @returns {Sketch[]} */
export function sketches(times, series) {
  /** @type {Sketch[]} */
  const found = [];
  for (const { text, histograms } of series) {
    if (!histograms) continue;
    /** @type {Column[]} */
    const columns = [];
    histograms.forEach((histogram, idx) => {
      if (histogram) columns.push(column(times[idx] ?? 0, (histogram.buckets ?? []).map(([, lower, upper, count]) => ({ lower: toNumber(lower), upper: toNumber(upper), count: Number(count) }))));
    });
    found.push({ text, columns });
  }
  return [...found, ...classic(times, series)];
}

/** @param {number[]} times @param {Series[]} series @returns {Sketch[]} */
function classic(times, series) {
  /** @type {Map<string, { upper: number, points: (number | null)[] }[]>} */
  const groups = new Map();
  for (const { labels, points } of series) {
    const { le, ...rest } = labels;
    if (le === undefined) continue;
    const key = Object.entries(rest).map(pair => pair.join("=")).join(", ") || "le";
    groups.set(key, [...(groups.get(key) ?? []), { upper: toNumber(le), points }]);
  }
  return [...groups].map(([text, bounds]) => {
    bounds.sort((a, b) => a.upper - b.upper);
    const columns = times.map((time, idx) => {
      let below = 0, lower = Math.min(0, bounds[0]?.upper ?? 0) < 0 ? -Infinity : 0;
      /** @type {Cell[]} */
      const cells = [];
      for (const { upper, points } of bounds) {
        const sum = points[idx] ?? below;
        // Buckets that were scraped at other times may not ascend.
        cells.push({ lower, upper, count: Math.max(0, sum - below) });
        below = Math.max(below, sum);
        lower = upper;
      }
      return column(time, cells);
    });
    return { text, columns };
  });
}

/** Distinct bounds of all cells, ascending. @param {Column[]} columns */
export function edgesOf(columns) {
  /** @type {Set<number>} */
  const found = new Set();
  for (const { cells } of columns) for (const { lower, upper } of cells) { found.add(lower); found.add(upper); }
  return [...found].sort((a, b) => a - b);
}

/** Position of a quantile in a column: a bound's index and the part of the way to the next one; null without observations. @param {Column} column @param {number[]} edges @param {number} quantile */
export function quantileAt({ cells, total }, edges, quantile) {
  if (!(total > 0)) return null;
  let before = 0;
  for (const { lower, upper, count } of [...cells].sort((a, b) => a.lower - b.lower)) {
    if (before + count >= quantile * total && count > 0) {
      const from = edges.indexOf(lower), to = edges.indexOf(upper);
      return from + ((quantile * total - before) / count) * (to - from);
    }
    before += count;
  }
  return null;
}
