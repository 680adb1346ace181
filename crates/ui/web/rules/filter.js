// Filter of rules and alerts: words, and matchers of labels like `severity="page"` or `team!=db`. Pure functions.
// Invariant: what `toggled` writes is read as a matcher of exactly this label and value.

/** @typedef {{ search: string, labels: Record<string, string>, own: Record<string, string> }} Item `search` is in lower case; `own` has more names that are matched like labels. */
/** @typedef {{ text: string, label: string, isEqual: boolean, value: string }} Token A matcher, or, without a label, the word `value`. */

const TOKEN = /("(?:[^"\\]|\\.)*"|[\p{L}_][\p{L}\p{N}_.:/-]*)(!?=)("(?:[^"\\]|\\.)*"|\S*)|"(?:[^"\\]|\\.)*"|\S+/gsu;

/** A text without its quotes. @param {string} text */
function unquoted(text) {
  if (!text.startsWith('"')) return text;
  try { return String(JSON.parse(text)); } catch { return text.replace(/^"|"$/g, ""); }
}

/** @param {string} filter @returns {Token[]} */
function tokens(filter) {
  return [...filter.matchAll(TOKEN)].map(([text, label = "", sign, value]) => ({ text, label: unquoted(label), isEqual: sign !== "!=", value: unquoted(sign ? value ?? "" : text) }));
}

/** Value of a label, "" without one. @param {Item} item @param {string} label */
const valueOf = ({ labels, own }, label) => (Object.hasOwn(labels, label) ? labels[label] : Object.hasOwn(own, label) ? own[label] : "") ?? "";

/** Returns a function that is true for items with all words and matchers of a filter, in any case. @param {string} filter @returns {(item: Item) => boolean} */
export function fits(filter) {
  const all = tokens(filter).map(token => ({ ...token, value: token.value.toLowerCase() }));
  return item => all.every(({ label, isEqual, value }) => (label ? (valueOf(item, label).toLowerCase() === value) === isEqual : item.search.includes(value)));
}

/** A matcher in the notation of filters. @param {string} label @param {string} value */
export const matcherText = (label, value) => `${/^[\p{L}_][\p{L}\p{N}_]*$/u.test(label) ? label : JSON.stringify(label)}=${JSON.stringify(value)}`;

/** @param {string} label @param {string} value */
const isOf = (label, value) => (/** @type {Token} */ token) => token.label === label && token.isEqual && token.value === value;

/** Returns true if a filter has the matcher of a label and value. @param {string} filter @param {string} label @param {string} value */
export const hasMatcher = (filter, label, value) => tokens(filter).some(isOf(label, value));

/** A filter with the matcher of a label and value, or without it if it has it. @param {string} filter @param {string} label @param {string} value */
export function toggled(filter, label, value) {
  const all = tokens(filter), others = all.filter(token => !isOf(label, value)(token));
  return [...others.map(token => token.text), ...(others.length < all.length ? [] : [matcherText(label, value)])].join(" ");
}
