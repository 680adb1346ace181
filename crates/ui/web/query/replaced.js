// Changes one name, label or value of a query, and nothing else: strings, comments and other names stay as they are.
// Not here: which change (missing.js). Pure functions.
import { isPlain } from "../format.js";

/** @typedef {{ kind: "name" | "label" | "value", label: string, from: string, to: string }} Change `label` is the one of a value. */

const TOKENS = /"(?:[^"\\]|\\[\s\S])*"|'(?:[^'\\]|\\[\s\S])*'|`[^`]*`|#[^\n]*|[a-zA-Z_:][\w:]*|=~|!~|!=|==|\s+|[\s\S]/g;
const isString = (/** @type {string} */ token) => /^["'`]/.test(token) && token.length > 1;
const isBlank = (/** @type {string} */ token) => /^[\s#]/.test(token);

/** Text of a string literal of PromQL. @param {string} token */
function unquoted(token) {
  const inside = token.slice(1, -1);
  if (token.startsWith("`")) return inside;
  try { return String(JSON.parse(`"${token.startsWith("'") ? inside.replaceAll("\\'", "'").replace(/(?<!\\)"/g, '\\"') : inside}"`)); } catch { return inside; }
}

/** A name, as a label or with quotes. @param {string} name */
const named = name => (/^[a-zA-Z_]\w*$/.test(name) ? name : JSON.stringify(name));

/** The query with a change made wherever it applies. @param {string} expr @param {Change} change */
export function replaced(expr, change) {
  const tokens = expr.match(TOKENS) ?? [];
  const words = tokens.map((token, idx) => ({ token, idx })).filter(({ token }) => !isBlank(token));
  let isInside = false;
  words.forEach(({ token, idx }, at) => {
    if (token === "{" || token === "}") { isInside = token === "{"; return; }
    const around = (/** @type {number} */ by) => words[at + by]?.token ?? "";
    const next = isInside ? within(token, around, change) : change.kind === "name" && token === change.from && around(1) !== "(" ? outside(tokens, words[at + 1], words[at + 2]?.token, change.to) : null;
    if (next !== null) tokens[idx] = next;
  });
  return tokens.join("");
}

/** A token between braces, or null if it stays. @param {string} token @param {(by: number) => string} around @param {Change} change */
function within(token, around, { kind, label, from, to }) {
  const text = isString(token) ? unquoted(token) : token, isMatcher = /^(=|!=|=~|!~)$/.test(around(-1)), isName = /^(=|!=|=~|!~)$/.test(around(1));
  const ofLabel = isString(around(-2)) ? unquoted(around(-2)) : around(-2);
  if (text !== from) return null;
  if (kind === "label") return isName ? named(to) : null;
  if (!isString(token)) return null;
  if (kind === "name" && !isMatcher && !isName) return JSON.stringify(to);
  const wanted = kind === "name" ? "__name__" : label;
  return isMatcher && ofLabel === wanted ? JSON.stringify(around(-1).endsWith("~") ? to.replace(/[.*+?^${}()|[\]\\]/g, "\\$&") : to) : null;
}

/** A metric's name in front of braces; one that needs quotes goes between them. @param {string[]} tokens @param {{ token: string, idx: number } | undefined} brace @param {string | undefined} first Token after the brace. @param {string} to */
function outside(tokens, brace, first, to) {
  if (isPlain(to)) return to;
  if (brace?.token !== "{") return `{${JSON.stringify(to)}}`;
  tokens[brace.idx] = `{${JSON.stringify(to)}${first === "}" ? "" : ", "}`;
  return "";
}
