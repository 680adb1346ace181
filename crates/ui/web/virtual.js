// A table of which only the rows in view are in the document.
// Invariant: all rows have one height, so the scroll bar is that of all rows.
import { html, useEffect, useRef, useState } from "./lib/ui.js";

export const ROW_PX = 25;
const EXTRA_ROWS = 10;

/**
 * @param {{ length: number, label: string, head?: any, row: (idx: number) => any, isTall?: boolean, top?: unknown }} props
 *   `row` makes the cells of a row; a change of `top` scrolls to the first row.
 */
export function Rows({ length, label, head, row, isTall, top }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [view, setView] = useState({ at: 0, height: 0 });
  const look = () => { if (box.current) setView({ at: box.current.scrollTop, height: box.current.clientHeight }); };
  useEffect(() => { if (box.current) box.current.scrollTop = 0; look(); }, [top]);
  const first = Math.max(0, Math.min(Math.floor(view.at / ROW_PX) - EXTRA_ROWS, length - 1));
  const last = Math.min(length, first + Math.ceil((view.height || 500) / ROW_PX) + 2 * EXTRA_ROWS);
  const gap = (/** @type {string} */ key, /** @type {number} */ rows) => rows > 0 && html`<tr class="gap" aria-hidden="true" key=${key}><td style=${{ height: `${rows * ROW_PX}px` }}></td></tr>`;
  return html`<div class=${isTall ? "rows tall" : "rows"} ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${look}>
    <table aria-rowcount=${length + (head ? 1 : 0)}>${head && html`<thead><tr>${head}</tr></thead>`}
      <tbody>${gap("above", first)}${Array.from({ length: Math.max(0, last - first) }, (_, at) => html`<tr key=${first + at} aria-rowindex=${first + at + 1 + (head ? 1 : 0)}>${row(first + at)}</tr>`)}${gap("below", length - last)}</tbody></table></div>`;
}
