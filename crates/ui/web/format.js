// Texts of series, numbers, times and sizes. Pure functions.

/** Returns true if a name needs no quotes in PromQL. @param {string} name */
export const isPlain = name => /^[a-zA-Z_:][a-zA-Z0-9_:]*$/.test(name);

/** A selector of exactly these labels, in PromQL's notation. @param {Record<string, string>} labels */
export function seriesText(labels) {
  const { __name__: name, ...rest } = labels;
  const pairs = Object.entries(rest).map(([label, value]) => `${/^[a-zA-Z_]\w*$/.test(label) ? label : JSON.stringify(label)}=${JSON.stringify(value)}`);
  if (name === undefined) return `{${pairs.join(", ")}}`;
  if (!isPlain(name)) pairs.unshift(JSON.stringify(name));
  return (isPlain(name) ? name : "") + (pairs.length || !isPlain(name) ? `{${pairs.join(", ")}}` : "");
}

const COUNT = new Intl.NumberFormat("en");
/** A whole number with separators. @param {number | null | undefined} value */
export const count = value => (value == null ? "–" : COUNT.format(value));

/** A number for an axis or a cell: 4 digits, with a prefix of SI. @param {number} value */
export function short(value) {
  const size = Math.abs(value);
  if (!Number.isFinite(value)) return value > 0 ? "+Inf" : value < 0 ? "-Inf" : "NaN";
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace(/\.?0+e/, "e");
  for (const [by, unit] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]]))
    if (size >= by) return Number((value / (unit === "k" ? 1e3 : by)).toPrecision(4)) + unit;
  return String(Number(value.toPrecision(4)));
}

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0, rest = value;
  while (Math.abs(rest) >= 1024 && unit < units.length - 1) { rest /= 1024; unit += 1; }
  return `${unit && rest < 100 ? rest.toFixed(1) : Math.round(rest)} ${units[unit]}`;
}

/** @param {number} ms */
export function duration(ms) {
  if (ms < 1) return `${Number(ms.toPrecision(2))} ms`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  return rangeText(Math.round(ms / 1000));
}

const UNITS = /** @type {[string, number][]} */ ([["y", 31_536_000], ["w", 604_800], ["d", 86_400], ["h", 3600], ["m", 60], ["s", 1]]);

/** Seconds of a duration like `1h30m`, as Prometheus writes them; NaN if it is none. @param {string} text */
export function rangeSeconds(text) {
  const compact = text.trim();
  if (!/^(\d+(ms|[ywdhms]))+$/.test(compact)) return NaN;
  let sum = 0;
  for (const [, number, unit] of compact.matchAll(/(\d+)(ms|[ywdhms])/g)) sum += Number(number) * (unit === "ms" ? 0.001 : UNITS.find(entry => entry[0] === unit)?.[1] ?? NaN);
  return sum;
}

/** @param {number} seconds */
export function rangeText(seconds) {
  let rest = Math.max(1, Math.round(seconds)), text = "";
  for (const [unit, size] of UNITS.slice(1)) {
    const whole = Math.floor(rest / size);
    if (whole) text += whole + unit;
    rest -= whole * size;
  }
  return text;
}

/** A duration in its two largest units: `1d4h`, `12s`. @param {number} seconds */
export const coarseText = seconds => (seconds < 1 ? "0s" : /^(?:\d+[a-z]){1,2}/.exec(rangeText(Math.floor(seconds)))?.[0] ?? "");

/** `2026-11-26 21:04:05`, in local time or UTC. @param {number} seconds @param {boolean} utc */
export function timeText(seconds, utc) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return String(seconds);
  const shifted = utc ? date : new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return shifted.toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
}

/** Seconds of such a text; NaN if it is none. @param {string} text @param {boolean} utc */
export const timeSeconds = (text, utc) => Date.parse(text.trim().replace(" ", "T") + (utc ? "Z" : "")) / 1000;
