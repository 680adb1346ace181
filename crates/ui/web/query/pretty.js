// JSON with line breaks and indentation, from the text: numbers keep all digits, which parsing would round.
// Not here: parsing (../json.js). Pure functions.

/** Longest array or object of scalars that stays on one line. */
const FLAT_MAX = 100;
const STRING = /"(?:[^"\\]|\\[\s\S])*"?/y, SCALAR = /[^\s,:[\]{}"]+/y, FLAT = /[[{](?:[^[\]{}"]|"(?:[^"\\]|\\[\s\S])*")*[\]}]/y;

/** @param {RegExp} sticky @param {string} text @param {number} at */
function matchAt(sticky, text, at) {
  sticky.lastIndex = at;
  return sticky.exec(text)?.[0] ?? "";
}

/** An array or object of scalars on one line. @param {string} text */
const flat = text => text.replace(/"(?:[^"\\]|\\[\s\S])*"|\s+|[,:]/g, part => (part === "," ? ", " : part === ":" ? ": " : part.startsWith('"') ? part : ""));

/** The first characters of the same value, at least `most` of them if there are as many. @param {string} text @param {number} [most] */
export function pretty(text, most = Infinity) {
  let out = "", depth = 0, at = 0;
  const line = () => "\n" + "  ".repeat(Math.max(0, depth));
  while (at < text.length && out.length < most) {
    const sign = text[at] ?? "";
    let part = sign;
    if (sign === '"') out += part = matchAt(STRING, text, at);
    else if (sign === "[" || sign === "{") {
      const whole = matchAt(FLAT, text, at);
      if (whole && whole.length <= FLAT_MAX) out += flat(part = whole);
      else { depth += 1; out += sign + line(); }
    } else if (sign === "]" || sign === "}") { depth -= 1; out += line() + sign; }
    else if (sign === ",") out += sign + line();
    else if (sign === ":") out += ": ";
    else if (!/\s/.test(sign)) out += part = matchAt(SCALAR, text, at) || sign;
    at += part.length;
  }
  return out;
}
