// Plans of `explain=1` and of the slow query log as trees. Pure functions.

/**
 * @typedef {{ op: string, text: string, seriesSelected: number, series: number, chunks: number, samples: number, timeMs: number, selfMs: number,
 *   memoryBytes: number, shared: { id: number, use: string } | null, rollups: any, children: Node[] }} Node
 */

const DEPTH_MAX = 200;

/** A plan, which may have been pasted, with all fields; null if it is none. @param {any} found @param {number} [depth] @returns {Node | null} */
export function parsePlan(found, depth = 0) {
  if (!found || typeof found !== "object" || typeof found.op !== "string" || depth > DEPTH_MAX) return null;
  const number = (/** @type {string} */ name) => (Number.isFinite(found[name]) ? found[name] : 0);
  const children = Array.isArray(found.children) ? found.children : [];
  return {
    op: found.op, text: typeof found.text === "string" ? found.text : "",
    seriesSelected: number("seriesSelected"), series: number("series"), chunks: number("chunks"), samples: number("samples"),
    timeMs: number("timeMs"), selfMs: number("selfMs"), memoryBytes: number("memoryBytes"),
    shared: found.shared && typeof found.shared === "object" ? { id: Number(found.shared.id), use: String(found.shared.use) } : null, rollups: found.rollups ?? null,
    children: children.flatMap((/** @type {any} */ child) => parsePlan(child, depth + 1) ?? []),
  };
}

/** The plan in a line of the slow query log, in an answer of the API, or alone. @param {string} text @returns {{ plan: any, query: string } | null} */
export function pasted(text) {
  const open = text.indexOf("{"), close = text.lastIndexOf("}");
  if (open < 0 || close < open) return null;
  let found;
  try { found = JSON.parse(text.slice(open, close + 1)); } catch { return null; }
  const line = found.fields?.message ? pasted(String(found.fields.message)) : null;
  if (line) return line;
  const plan = found.plan ?? found.data?.explain ?? found.explain ?? found;
  return parsePlan(plan) ? { plan, query: typeof found.query === "string" ? found.query : "" } : null;
}

/** Own times of all operators. @param {Node} node @returns {number} */
export const sumOwn = node => node.children.reduce((sum, child) => sum + sumOwn(child), node.selfMs);

/** Paths (`0`, `0.1`, ...) of the costliest operator of each level, from the root on. @param {Node} root */
export function pathOf(root) {
  const paths = new Set(["0"]);
  let node = root, path = "0";
  while (node.children.length) {
    let costliest = 0;
    node.children.forEach((child, idx) => { if (child.timeMs > (node.children[costliest]?.timeMs ?? 0)) costliest = idx; });
    path += `.${costliest}`;
    paths.add(path);
    node = /** @type {Node} */ (node.children[costliest]);
  }
  return paths;
}
