// PromQL's grammar out of the editor's bundle: loading it, colours of a text, and the threshold of a comparison.
// Not here: the editor (editor.js).
import { html, useEffect, useMemo, useState } from "../lib/ui.js";
import { rangeSeconds } from "../format.js";

/** @typedef {typeof import("../lib/editor.js")} CodeMirror */
/** @typedef {import("@lezer/common").SyntaxNode} SyntaxNode */

/** Longer queries have no colours. */
const COLOURED_CHARS_MAX = 20_000;
/** @type {Promise<CodeMirror> | null} */
let bundle = null;
export const loadBundle = () => (bundle ??= import("../lib/editor.js"));

/** Tags of the grammar by the name of their colour. @param {CodeMirror} cm @returns {[any[], string][]} */
export function colouredTags({ tags }) {
  return [
    [[tags.keyword, tags.operatorKeyword, tags.modifier], "keyword"], [[tags.string], "string"], [[tags.number, tags.definition(tags.number), tags.name], "number"],
    [[tags.function(tags.variableName)], "function"], [[tags.labelName], "label"], [[tags.comment], "comment"],
  ];
}

/** @type {import("@codemirror/language").LRLanguage | null} */
let grammar = null;
/** PromQL as a language of CodeMirror. @param {CodeMirror} cm */
export const language = cm => (grammar ??= cm.promQLLanguage(cm.LanguageType.PromQL));

/** @param {CodeMirror} cm @param {string} text */
const parse = (cm, text) => language(cm).parser.parse(text);

/** Parts of a query, each with the name of its colour, "" for none. @param {CodeMirror} cm @param {string} text @returns {[string, string][]} */
function colouredParts(cm, text) {
  /** @type {[string, string][]} */
  const parts = [];
  let at = 0;
  const upTo = (/** @type {number} */ end) => { if (end > at) parts.push([text.slice(at, end), ""]); };
  cm.highlightTree(parse(cm, text), cm.tagHighlighter(colouredTags(cm).map(([tag, name]) => ({ tag, class: name }))), (from, to, name) => {
    upTo(from);
    parts.push([text.slice(from, to), name]);
    at = to;
  });
  upTo(text.length);
  return parts;
}

/** The editor's bundle, null until it has been loaded. @returns {CodeMirror | null} */
function useBundle() {
  const [cm, setBundle] = useState(/** @type {CodeMirror | null} */ (null));
  useEffect(() => {
    let isEnded = false;
    loadBundle().then(found => { if (!isEnded) setBundle(() => found); }, () => { /* Queries stay without colours. */ });
    return () => { isEnded = true; };
  }, []);
  return cm;
}

/** A query in the colours of the editor. @param {{ text: string }} props */
export function Code({ text }) {
  const cm = useBundle();
  const parts = useMemo(() => (cm && text.length <= COLOURED_CHARS_MAX ? colouredParts(cm, text) : /** @type {[string, string][]} */ ([[text, ""]])), [cm, text]);
  return html`<code class="promql">${parts.map(([part, name], idx) => (name ? html`<span key=${idx} class=${`code-${name}`}>${part}</span>` : part))}</code>`;
}

/** Comparisons, and what they are with their sides exchanged. @type {Record<string, [string, string]>} */
const COMPARISONS = { Eql: ["==", "=="], Neq: ["!=", "!="], Gtr: [">", "<"], Lss: ["<", ">"], Gte: [">=", "<="], Lte: ["<=", ">="] };
/** @type {Record<string, (a: number, b: number) => number>} */
const ARITHMETIC = { Add: (a, b) => a + b, Sub: (a, b) => a - b, Mul: (a, b) => a * b, Div: (a, b) => a / b, Mod: (a, b) => a % b, Pow: (a, b) => a ** b };

/** Nodes below one, without comments. @param {SyntaxNode} node */
function childrenOf(node) {
  /** @type {SyntaxNode[]} */
  const found = [];
  for (let child = node.firstChild; child; child = child.nextSibling) if (child.name !== "LineComment") found.push(child);
  return found;
}

/** Value of an expression of numbers alone, otherwise NaN. @param {SyntaxNode} node @param {string} text @returns {number} */
function constant(node, text) {
  const children = childrenOf(node), own = text.slice(node.from, node.to);
  const [first, second, third] = children;
  if (node.name === "NumberDurationLiteral") return numberOf(own);
  if (node.name === "ParenExpr" && first) return constant(first, text);
  if (node.name === "UnaryExpr" && second) return (own.startsWith("-") ? -1 : 1) * constant(second, text);
  const operation = node.name === "BinaryExpr" && children.length === 3 ? ARITHMETIC[second?.name ?? ""] : undefined;
  return operation && first && third ? operation(constant(first, text), constant(third, text)) : NaN;
}

/** @param {string} text A number, or a duration, which counts in seconds. */
function numberOf(text) {
  if (/^[+-]?inf$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  const number = Number(text.replaceAll("_", ""));
  return Number.isNaN(number) ? rangeSeconds(text) : number;
}

/** The other side of a comparison with a number, which filters; null for other queries. @param {CodeMirror} cm @param {string} query @returns {{ expr: string, sign: string, value: number } | null} */
export function thresholdOf(cm, query) {
  const tree = parse(cm, query);
  let isWrong = false;
  tree.iterate({ enter: node => { isWrong ||= node.type.isError; } });
  let node = childrenOf(tree.topNode)[0];
  while (node?.name === "ParenExpr") node = childrenOf(node)[0];
  if (isWrong || node?.name !== "BinaryExpr") return null;
  const [left, operator, right, ...modifiers] = childrenOf(node), signs = COMPARISONS[operator?.name ?? ""];
  if (!left || !right || !signs || modifiers.length) return null;
  const [leftValue, rightValue] = [left, right].map(side => constant(side, query));
  const ofNumber = (/** @type {SyntaxNode} */ other, /** @type {string} */ sign, /** @type {number} */ value) => (Number.isFinite(value) ? { expr: query.slice(other.from, other.to), sign, value } : null);
  if (Number.isNaN(leftValue) === Number.isNaN(rightValue)) return null;
  return Number.isNaN(leftValue) ? ofNumber(left, signs[0], rightValue ?? NaN) : ofNumber(right, signs[1], leftValue ?? NaN);
}
