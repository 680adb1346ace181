// Large answers parsed in short tasks: the elements of `result`, some at a time.
// Invariant: the value is that of `JSON.parse`; a text that is no JSON fails in the same way.
import { pacer } from "./tasks.js";

/** Shorter texts are parsed at once. */
const SHORT_CHARS = 1 << 20;
/** Characters of one call of the parser. */
const PART_CHARS = 1 << 18;
const START = '"result":[';
const QUOTE = 34, BACKSLASH = 92, COMMA = 44, OPEN_ARRAY = 91, CLOSE_ARRAY = 93, OPEN_OBJECT = 123, CLOSE_OBJECT = 125;

/** @param {string} text @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function parseInTasks(text, signal) {
  const start = text.length < SHORT_CHARS ? -1 : text.indexOf(START);
  if (start < 0) return JSON.parse(text);
  const next = pacer(signal);
  /** @type {any[]} */
  const elements = [];
  let from = start + START.length, isLast = false;
  while (!isLast) {
    const end = partEnd(text, from);
    for (const element of JSON.parse(`[${text.slice(from, end.at)}]`)) elements.push(element);
    from = end.at + 1;
    isLast = end.isLast;
    await next();
  }
  const around = JSON.parse(`${text.slice(0, start)}${START}]${text.slice(from)}`);
  around.data.result = elements;
  return around;
}

/** End of the elements that begin at `from`: a comma between two of them after a part, or the end of the array. @param {string} text @param {number} from */
function partEnd(text, from) {
  let depth = 0;
  for (let at = from; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = stringEnd(text, at);
    } else if (code === OPEN_ARRAY || code === OPEN_OBJECT) {
      depth += 1;
    } else if (code === CLOSE_ARRAY || code === CLOSE_OBJECT) {
      if (depth === 0) return { at, isLast: true };
      depth -= 1;
    } else if (code === COMMA && depth === 0 && at - from >= PART_CHARS) {
      return { at, isLast: false };
    }
  }
  return { at: text.length, isLast: true };
}

/** Place of the quote that ends a string. @param {string} text @param {number} start Place of the one that begins it. */
function stringEnd(text, start) {
  for (let at = text.indexOf('"', start + 1); at >= 0; at = text.indexOf('"', at + 1)) {
    let slashes = 0;
    while (text.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return at;
  }
  return text.length;
}
