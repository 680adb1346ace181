// Legend of a graph: names without common labels, figures, as many columns as the names leave room for.
// Not here: which series are drawn (graph.js); names (names.js).
import { html, useEffect, useMemo, useRef, useState } from "../lib/ui.js";
import { count, short } from "../format.js";
import { colourOf } from "./colours.js";

const FIGURES = ["last", "min", "max", "mean"];
/** Sizes as in query.css: a figure, a letter of a name, and what else stands in a column. */
const FIGURE_PX = 62, LETTER_PX = 7.6, OTHER_PX = 56;
/** Columns have at least this many rows. */
const ROWS_MIN = 3, COLUMNS_MAX = 5;
/** On a phone there is one figure (query.css). */
const PHONE_PX = 700;

/** Columns of a legend. @param {number} width @param {string[]} names @param {number} figures Figures of a series. */
export function columnsOf(width, names, figures) {
  const letters = names.reduce((most, name) => Math.max(most, name.length), 0);
  return Math.max(1, Math.min(COLUMNS_MAX, Math.floor(width / (letters * LETTER_PX + figures * FIGURE_PX + OTHER_PX)), Math.ceil(names.length / ROWS_MIN)));
}

/** Last value, least, greatest and mean of a line; gaps do not count. @param {import("./languages.js").Series} line */
function figures({ points }) {
  let last = null, low = Infinity, high = -Infinity, sum = 0, n = 0;
  for (const value of points) {
    if (value === null) continue;
    last = value; low = Math.min(low, value); high = Math.max(high, value); sum += value; n += 1;
  }
  return n ? [last, low, high, sum / n] : [null, null, null, null];
}

/**
 * @param {{ lines: import("./languages.js").Series[], names: string[], common: string, isFull: boolean, hidden: Set<string>,
 *   onToggle: (text: string) => void, onIsolate: (text: string) => void, onFull: (isFull: boolean) => void }} props `common`: labels of all lines.
 */
export function Legend({ lines, names, common, isFull, hidden, onToggle, onIsolate, onFull }) {
  const list = useRef(/** @type {HTMLUListElement | null} */ (null));
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(list.current?.clientWidth ?? 0));
    if (list.current) observer.observe(list.current);
    return () => observer.disconnect();
  }, []);
  const all = useMemo(() => lines.map(figures), [lines]);
  const columns = columnsOf(width, names, innerWidth > PHONE_PX ? FIGURES.length : 1), style = { gridTemplateColumns: `repeat(${columns}, minmax(0, 1fr))` };
  return html`
    ${common && html`<div class="bar common"><button class="toggle" aria-pressed=${!isFull} onClick=${() => onFull(!isFull)}>Hide common labels</button><code title="Labels that all series have">${common}</code></div>`}
    <div class="legend-head soft" aria-hidden="true" style=${style}>${Array.from({ length: columns }, (_, at) => html`<div key=${at}>${at === 0 && html`<b>${count(lines.length)} series</b>`}${FIGURES.map(name => html`<span key=${name}>${name}</span>`)}</div>`)}</div>
    <ul class="legend" tabindex="0" aria-label="Series" ref=${list} style=${style}>${lines.map((line, idx) => html`<li key=${line.text} class=${hidden.has(line.text) ? "off" : ""}>
      <button class="swatch" aria-label=${`Hide or show ${line.text}`} aria-pressed=${!hidden.has(line.text)} onClick=${() => onToggle(line.text)}><i style=${{ background: colourOf(idx) }}></i></button>
      <button class="name" title=${`${line.text}\nOnly this series, or all again`} onClick=${() => onIsolate(line.text)}>${names[idx]}</button>
      <span class="figures">${all[idx]?.map((value, at) => html`<span key=${FIGURES[at]}><span class="hidden">${FIGURES[at]} </span>${value === null ? "–" : short(value)}</span>`)}</span></li>`)}</ul>`;
}
