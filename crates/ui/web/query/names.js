// Names of series for a legend: labels that are equal in all of them are left out, and named once.
// Invariant: series with different labels keep different names. Pure functions.
import { seriesText } from "../format.js";

/** @typedef {import("./languages.js").Series} Series */

/** Text in front of the labels, and labels that a name consists of. @param {Series} line */
const partsOf = line => line.parts ?? { head: "", labels: line.labels };

/** Labels with the same value in all series; the common text in front of them. @param {Series[]} series */
function commonOf(series) {
  const [first, ...rest] = series.map(partsOf);
  /** @type {Record<string, string>} */
  const labels = {};
  if (!first || !rest.length) return { head: "", labels };
  for (const [name, value] of Object.entries(first.labels)) if (rest.every(one => Object.hasOwn(one.labels, name) && one.labels[name] === value)) labels[name] = value;
  return { head: rest.every(one => one.head === first.head) ? first.head : "", labels };
}

const textOf = (/** @type {string} */ head, /** @type {Record<string, string>} */ labels) => (head && !Object.keys(labels).length ? head : head + seriesText(labels));

/** Names of series without what they have in common, and that; whole names if they have nothing in common, or there is one. @param {Series[]} series @returns {{ names: string[], common: string }} */
export function shortNames(series) {
  const common = commonOf(series);
  if (!common.head && !Object.keys(common.labels).length) return { names: series.map(line => line.text), common: "" };
  const names = series.map(line => {
    const { head, labels } = partsOf(line);
    return textOf(common.head ? "" : head, Object.fromEntries(Object.entries(labels).filter(([name]) => !Object.hasOwn(common.labels, name))));
  });
  return { names, common: textOf(common.head, common.labels) };
}
