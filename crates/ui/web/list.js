// A list of which only the rows in view are in the document, with rows of different heights.
// Invariant: a row has the height that was measured; before that, the mean of the first ones of its kind.
// Not here: tables with rows of one height (virtual.js).
import { html, useEffect, useMemo, useRef, useState } from "./lib/ui.js";

/** @typedef {{ key: string, kind: string }} Row A row is measured again when its kind changes. */

/** Height of rows before any of their kind has been measured. */
const GUESS_PX = 34;
/** Rows above and below the view that are in the document. */
const EXTRA_PX = 300;
const VIEW_PX = 900;
/** Heights of rows that are gone are forgotten when there are this many. */
const SIZES_MAX = 50_000;

const sizeKey = (/** @type {Row} */ row) => `${row.kind}\n${row.key}`;

/** First of the ascending numbers that is greater than `at`. @param {Float64Array} numbers @param {number} at */
export function firstAbove(numbers, at) {
  let low = 0, high = numbers.length;
  while (low < high) { const middle = (low + high) >> 1; if (/** @type {number} */ (numbers[middle]) > at) high = middle; else low = middle + 1; }
  return low;
}

class Sizes {
  constructor() {
    this.width = 0;
    /** @type {Map<string, number>} */
    this.byKey = new Map();
    /** @type {Map<string, number>} */
    this.byKind = new Map();
  }

  /** Heights of the rows in the document; returns true if one differs from before. @param {HTMLElement} list @param {Row[]} shown */
  measure(list, shown) {
    let isChanged = list.clientWidth !== this.width;
    if (isChanged || this.byKey.size > SIZES_MAX) { this.byKey.clear(); this.byKind.clear(); }
    this.width = list.clientWidth;
    /** @type {Map<string, number[]>} */
    const first = new Map();
    for (const [idx, row] of shown.entries()) {
      const height = list.children[idx]?.getBoundingClientRect().height ?? 0, key = sizeKey(row);
      if (!height) continue;
      if (Math.abs((this.byKey.get(key) ?? 0) - height) > 0.5) { this.byKey.set(key, height); isChanged = true; }
      if (!this.byKind.has(row.kind)) first.set(row.kind, [...(first.get(row.kind) ?? []), height]);
    }
    for (const [kind, heights] of first) this.byKind.set(kind, heights.reduce((sum, height) => sum + height) / heights.length);
    return isChanged;
  }

  /** Ends of rows from the top of the list. @param {Row[]} rows */
  ends(rows) {
    const ends = new Float64Array(rows.length);
    let at = 0;
    for (const [idx, row] of rows.entries()) { at += this.byKey.get(sizeKey(row)) ?? this.byKind.get(row.kind) ?? GUESS_PX; ends[idx] = at; }
    return ends;
  }
}

/** @template {Row} R @param {{ rows: R[], label: string, row: (row: R) => any, top?: unknown }} props `row` makes the content of a row; a change of `top` scrolls to the first one. */
export function List({ rows, label, row, top }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null)), list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const [sizes] = useState(() => new Sizes()), [measured, setMeasured] = useState(0), [view, setView] = useState({ at: 0, height: 0 });
  const shown = useRef(/** @type {Row[]} */ ([]));
  const look = () => { if (box.current) setView({ at: box.current.scrollTop, height: box.current.clientHeight }); };
  useEffect(() => { if (box.current) box.current.scrollTop = 0; look(); }, [top]);
  useEffect(() => {
    let frame = 0;
    // Not in the call of the observer, which must not change what it observes.
    const observer = new ResizeObserver(() => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => { look(); if (list.current && sizes.measure(list.current, shown.current)) setMeasured(now => now + 1); });
    });
    for (const element of [box.current, list.current]) if (element) observer.observe(element);
    return () => { cancelAnimationFrame(frame); observer.disconnect(); };
  }, []);
  const ends = useMemo(() => sizes.ends(rows), [rows, measured]);
  const whole = ends[ends.length - 1] ?? 0, height = view.height || VIEW_PX, at = Math.min(view.at, Math.max(0, whole - height));
  const first = firstAbove(ends, at - EXTRA_PX), last = Math.min(rows.length, firstAbove(ends, at + height + EXTRA_PX) + 1);
  const above = ends[first - 1] ?? 0, below = whole - (ends[last - 1] ?? 0);
  const inView = rows.slice(first, last);
  shown.current = inView;
  return html`<div class="rows tall" ref=${box} tabindex="0" role="region" aria-label=${label} onScroll=${look}>
    <ul class="list" ref=${list} style=${{ paddingTop: `${above}px`, paddingBottom: `${below}px` }}>
      ${inView.map((one, idx) => html`<li key=${one.key} class=${one.kind} aria-setsize=${rows.length} aria-posinset=${first + idx + 1}>${row(one)}</li>`)}</ul></div>`;
}
