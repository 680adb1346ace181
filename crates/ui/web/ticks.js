// Ticks of time axes: round times, and texts that do not repeat. Pure functions.
import { timeText } from "./format.js";

/** Distances between ticks in seconds. */
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_776_000, 31_536_000];

/** Round times between two times, at most `most` of them. @param {number} from @param {number} to Seconds. @param {number} most @param {boolean} utc */
export function roundTimes(from, to, most, utc) {
  const wanted = (to - from) / Math.max(1, most);
  const apart = STEPS.find(step => step >= wanted) ?? Math.ceil(wanted / 31_536_000) * 31_536_000;
  // Hours and days begin where those of the time zone begin.
  const zone = utc ? 0 : new Date(from * 1000).getTimezoneOffset() * 60;
  /** @type {number[]} */
  const times = [];
  for (let time = Math.ceil((from - zone) / apart) * apart + zone; time <= to; time += apart) times.push(time);
  return { times, apart };
}

/** Texts of the time axis: the date at the first tick of each day. @param {number[]} ticks @param {number} apart @param {boolean} utc */
export function timeTicks(ticks, apart, utc) {
  let day = "";
  return ticks.map(tick => {
    const [date = "", clock = ""] = timeText(tick, utc).split(" ");
    const text = apart >= 86_400 ? date : apart < 60 ? clock : clock.slice(0, 5);
    if (apart >= 86_400 || date === day) return text;
    day = date;
    return `${text}\n${date.slice(5)}`;
  });
}
