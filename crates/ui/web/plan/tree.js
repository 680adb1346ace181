// A plan as a tree with bars: time of each operator and of those below it, series, chunks, samples, memory.
// Not here: where the plan comes from (the query page, pages/plan.js).
import { html, signal, useMemo, useState } from "../lib/ui.js";
import { bytes, count, duration } from "../format.js";
import { parsePlan, pathOf, sumOwn } from "./nodes.js";

/** @typedef {import("./nodes.js").Node} Node */

/** A plan to compare with, kept until the document goes. */
const kept = signal(/** @type {any} */ (null));

/** @param {{ plan: any }} props */
export function Plan({ plan }) {
  const root = useMemo(() => parsePlan(plan), [plan]);
  const other = useMemo(() => kept.value && parsePlan(kept.value), [kept.value]);
  if (!root) return html`<p class="empty">This answer has no plan.</p>`;
  return html`
    <div class="bar"><span>${duration(root.timeMs)} in all, ${duration(sumOwn(root))} in its operators</span>
      <button class="quiet" onClick=${() => { kept.value = plan; }}>Keep for comparison</button>
      ${kept.value && html`<button class="quiet" onClick=${() => { kept.value = null; }}>Close comparison</button>`}</div>
    <div class=${other ? "pair" : ""}>
      ${other && other !== root && html`<section aria-label="Kept plan"><h2>Kept: ${duration(other.timeMs)}</h2><${Tree} root=${other} most=${Math.max(other.timeMs, root.timeMs)} /></section>`}
      <section aria-label="Plan">${other && html`<h2>This run: ${duration(root.timeMs)}</h2>`}<${Tree} root=${root} most=${Math.max(other?.timeMs ?? 0, root.timeMs)} /></section>
    </div>`;
}

/** @param {{ root: Node, most: number }} props */
export function Tree({ root, most }) {
  const [open, setOpen] = useState(/** @type {Set<string>} */ (new Set()));
  const costly = useMemo(() => pathOf(root), [root]);
  const isOpen = (/** @type {string} */ path) => costly.has(path) !== open.has(path);
  const toggle = (/** @type {string} */ path) => setOpen(now => { const next = new Set(now); if (!next.delete(path)) next.add(path); return next; });
  /** @type {{ node: Node, path: string, depth: number }[]} */
  const rows = [];
  const walk = (/** @type {Node} */ node, /** @type {string} */ path, /** @type {number} */ depth) => {
    rows.push({ node, path, depth });
    if (isOpen(path)) node.children.forEach((child, idx) => walk(child, `${path}.${idx}`, depth + 1));
  };
  walk(root, "0", 0);
  return html`<div class="rows tall" tabindex="0" role="region" aria-label="Operators"><table class="plan">
    <thead><tr><th>operator</th><th>own and total time</th><th>own</th><th>total</th><th>selected</th><th>series</th><th>chunks</th><th>samples</th><th>memory</th></tr></thead>
    <tbody>${rows.map(({ node, path, depth }) => html`<tr key=${path} class=${costly.has(path) ? "costly" : ""}>
      <td style=${{ paddingLeft: `${8 + depth * 16}px` }}>
        ${node.children.length ? html`<button class="fold" aria-expanded=${isOpen(path)} aria-label=${`Operators of ${node.op}`} onClick=${() => toggle(path)}>${isOpen(path) ? "▾" : "▸"}</button>` : html`<span class="fold"></span>`}
        <b>${node.op}</b> ${node.shared && html`<span class="tag" title="Computed once, used several times">shared ${node.shared.id}${node.shared.use === "first" ? "" : ", again"}</span>`}
        ${node.rollups && html`<span class="tag" title="Windows of roll-ups that were read instead of samples">roll-ups</span>`}
        <span class="mono soft" title=${node.text}>${node.text}</span></td>
      <td><span class="bars" aria-hidden="true"><i class="total" style=${{ width: `${(100 * node.timeMs) / (most || 1)}%` }}></i><i class="own" style=${{ width: `${(100 * node.selfMs) / (most || 1)}%` }}></i></span></td>
      <td class="value">${duration(node.selfMs)}</td><td class="value">${duration(node.timeMs)}</td><td class="value">${count(node.seriesSelected || null)}</td>
      <td class="value">${count(node.series)}</td><td class="value">${count(node.chunks || null)}</td><td class="value">${count(node.samples || null)}</td><td class="value">${node.memoryBytes ? bytes(node.memoryBytes) : "–"}</td></tr>`)}</tbody>
  </table></div>`;
}
