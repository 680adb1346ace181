// Memory of the process as treemaps, by part and by tenant, and as a table.
// Not here: the layout (squares.js).
import { html } from "../lib/ui.js";
import { bytes } from "../format.js";
import { hrefOf } from "../route.js";
import { Bar, heads } from "../widgets.js";
import { fittingText, squarify } from "./squares.js";

/** Heights of a map as status.css has them, wide and on a phone; the boxes are in per cent of the map. */
const WIDE = { height: 300, low: 110 }, NARROW = { height: 420, low: 180 };
const PHONE = "(max-width: 700px)";
/** Width of a map: the window, at most that of `main`, without what stands at both sides, a scroll bar included. */
const mapWidth = () => Math.max(240, Math.min(innerWidth, 1680) - (matchMedia(PHONE).matches ? 46 : 76));
/** Boxes of one map; smaller parts are one box together. */
const BOXES_MAX = 24;
/** Groups of parts, by the index of their colour. */
const GROUPS = ["head", "store", "server", "process"];
/** @typedef {{ name: string, group: string, size: number, tenant?: string }} Part */

/** Parts of the process, the largest first. @param {any} state @returns {Part[]} */
export function partsOf(state) {
  const parts = Object.entries(/** @type {Record<string, Record<string, { bytes: number }>>} */ (state.parts)).flatMap(([group, found]) => Object.entries(found).map(([name, part]) => ({ name: name.replaceAll("_", " "), group, size: part.bytes })));
  parts.push({ name: "unaccounted", group: "process", size: Math.max(0, state.unaccountedBytes || 0) }, { name: "mmap", group: "process", size: state.process.fileBytes || 0 });
  return parts.filter(part => part.size > 0).sort((a, b) => b.size - a.size);
}

/** @param {{ state: any }} props */
export function Memory({ state }) {
  const parts = partsOf(state), most = parts[0]?.size || 1;
  const tenants = /** @type {{ tenant: string, bytes: number }[]} */ (state.tenants ?? []).filter(one => one.bytes > 0).map(one => ({ name: one.tenant, group: "head", size: one.bytes, tenant: one.tenant }));
  return html`<h2>Memory${state.process.residentBytes == null ? "" : `, ${bytes(state.process.residentBytes)} resident`}</h2>
    <${Treemap} label="Memory by part" parts=${parts} />
    <div class="bar soft">${GROUPS.map((group, idx) => html`<span class="key" key=${group}><i class=${`map${idx}`}></i>${group}</span>`)}</div>
    ${tenants.length > 0 && html`<h3>Head by tenant</h3><${Treemap} label="Memory of the head by tenant" parts=${tenants} isLow />`}
    <div class="rows" tabindex="0" role="region" aria-label="Memory"><table><thead>${heads(["part", "relative", "#bytes"])}</thead><tbody>
      ${[...parts, ...tenants.map(one => ({ ...one, name: `of the tenant ${one.name}` }))].map(({ name, group, size }) => html`<tr key=${`${group} ${name}`}><td>${group} ${name}</td><td><${Bar} part=${size} of=${most} /></td><td class="value">${bytes(size)}</td></tr>`)}</tbody></table></div>`;
}

/** @param {{ label: string, parts: Part[], isLow?: boolean }} props */
function Treemap({ label, parts, isLow }) {
  const shown = parts.slice(0, BOXES_MAX), left = parts.slice(BOXES_MAX).reduce((sum, part) => sum + part.size, 0);
  if (left > 0) shown.push({ name: `${parts.length - BOXES_MAX} others`, group: "process", size: left });
  shown.sort((a, b) => b.size - a.size);
  const all = shown.reduce((sum, part) => sum + part.size, 0), shape = matchMedia(PHONE).matches ? NARROW : WIDE, height = isLow ? shape.low : shape.height, whole = mapWidth();
  const boxes = squarify(shown.map(part => part.size), { x: 0, y: 0, width: whole, height });
  return html`<ul class=${isLow ? "map low" : "map"} aria-label=${label}>${shown.map((part, idx) => {
    const { x, y, width, height: high } = /** @type {import("./squares.js").Box} */ (boxes[idx]);
    const fitting = fittingText(part.name, bytes(part.size), width, high);
    const text = html`<b class=${fitting ? "" : "hidden"}>${part.name}</b> <span class=${fitting === "both" ? "" : "hidden"}>${bytes(part.size)}</span>`;
    return html`<li key=${`${part.group} ${part.name}`} class=${`map${Math.max(0, GROUPS.indexOf(part.group))}`} title=${`${part.group} ${part.name}: ${bytes(part.size)}, ${((100 * part.size) / all).toFixed(1)} %`}
      style=${{ left: `${(100 * x) / whole}%`, top: `${(100 * y) / height}%`, width: `${(100 * width) / whole}%`, height: `${(100 * high) / height}%` }}>${part.tenant ? html`<a href=${hrefOf("storage", { tenant: part.tenant })} data-page="storage">${text}</a>` : text}</li>`;
  })}</ul>`;
}
