// Blocks of a tenant and the windows of its head on a time line, and as a table.
import { html } from "../lib/ui.js";
import { bytes, count, rangeText, timeText } from "../format.js";
import { roundTimes, timeTicks } from "../ticks.js";
import { Rows } from "../virtual.js";

/** Lanes of the time line; blocks that overlap more often are in the table alone. */
const LANES_MAX = 12;
const BARS_MAX = 2000;
const TICKS = 8;
/** Length of a window of the head, which is flushed to a block as a whole. */
const WINDOW_MS = 7_200_000;
const LOCATIONS = { local: "local", bucket: "bucket", both: "local and bucket" };
/** @typedef {{ ulid: string, minTime: number, maxTime: number, stats: { numSamples: number, numSeries: number, numChunks: number }, compaction: { level: number, sources?: string[] }, bytes: number, location: "local" | "bucket" | "both" }} Block */

/** Lanes in which no two blocks overlap: the first free one for each, by start. @param {{ minTime: number, maxTime: number }[]} blocks */
export function lanesOf(blocks) {
  /** @type {number[]} */
  const ends = [];
  return blocks.map(({ minTime, maxTime }) => {
    let lane = ends.findIndex(end => end <= minTime);
    if (lane < 0) lane = ends.push(0) - 1;
    ends[lane] = maxTime;
    return lane;
  });
}

/** Windows of the head between two times; one for all if there are more than bars. @param {number} min @param {number} max */
export function windowsOf(min, max) {
  if ((max - min) / WINDOW_MS > BARS_MAX) return [{ min, max }];
  /** @type {{ min: number, max: number }[]} */
  const windows = [];
  for (let from = min; from < max;) {
    const next = Math.min(max, (Math.floor(from / WINDOW_MS) + 1) * WINDOW_MS);
    windows.push({ min: from, max: next });
    from = next;
  }
  return windows;
}

/** @param {{ blocks: Block[], head: { min: number | null, max: number | null, series: number }, utc: boolean }} props */
export function Blocks({ blocks, head, utc }) {
  const sorted = [...blocks].sort((a, b) => a.minTime - b.minTime || b.maxTime - a.maxTime);
  const newest = sorted.toReversed(), total = blocks.reduce((sum, block) => sum + (block.bytes || 0), 0);
  const time = (/** @type {number} */ ms) => timeText(Math.floor(ms / 1000), utc);
  return html`<h2>Blocks: ${count(blocks.length)}, ${bytes(total)}</h2>
    <${TimeLine} blocks=${sorted} head=${head} utc=${utc} />
    ${blocks.length > 0 && html`<${Rows} length=${newest.length} label="Blocks" head=${html`<th>from</th><th>until</th><th class="right">range</th><th class="right">series</th><th class="right">samples</th><th class="right">chunks</th><th class="right">bytes</th><th class="right">bytes per sample</th><th class="right">level</th><th>where</th><th>id</th>`}
      row=${(/** @type {number} */ idx) => { const block = /** @type {Block} */ (newest[idx]), { stats } = block; return html`<td>${time(block.minTime)}</td><td>${time(block.maxTime)}</td><td class="value">${rangeText((block.maxTime - block.minTime) / 1000)}</td>
        <td class="value">${count(stats.numSeries)}</td><td class="value">${count(stats.numSamples)}</td><td class="value">${count(stats.numChunks)}</td><td class="value">${bytes(block.bytes)}</td>
        <td class="value">${stats.numSamples ? (block.bytes / stats.numSamples).toFixed(2) : "–"}</td><td class="value">${block.compaction.level}</td><td>${LOCATIONS[block.location] ?? block.location}</td><td class="mono">${block.ulid}</td>`; }} />`}`;
}

/** @param {{ blocks: Block[], head: { min: number | null, max: number | null, series: number }, utc: boolean }} props */
function TimeLine({ blocks, head, utc }) {
  const shown = blocks.slice(-BARS_MAX), hasHead = head.min != null && head.max != null;
  const from = Math.min(shown[0]?.minTime ?? Infinity, hasHead ? Number(head.min) : Infinity), to = Math.max(...shown.map(block => block.maxTime), hasHead ? Number(head.max) : -Infinity);
  if (!(to > from)) return html`<p class="empty">No samples.</p>`;
  const lanes = lanesOf(shown), laneCount = Math.min(LANES_MAX, Math.max(0, ...lanes.map(lane => lane + 1)));
  const at = (/** @type {number} */ ms) => (100 * (ms - from)) / (to - from);
  const bar = (/** @type {number} */ min, /** @type {number} */ max) => ({ left: `${at(min)}%`, width: `max(2px, ${at(max) - at(min)}%)` });
  const { times, apart } = roundTimes(from / 1000, to / 1000, TICKS, utc), texts = timeTicks(times, apart, utc);
  return html`<div class="line" role="img" aria-label=${`Time line of ${count(blocks.length)} blocks; the table below has their values`}>
    ${hasHead && html`<div class="lane">${windowsOf(Number(head.min), Number(head.max)).map(({ min, max }) => html`<i class="head" key=${min} style=${bar(min, max)} title=${`window of the head, ${count(head.series)} series in all`}></i>`)}</div>`}
    ${Array.from({ length: laneCount }, (_, lane) => html`<div class="lane" key=${lane}>${shown.map((block, idx) => lanes[idx] === lane && html`<i key=${block.ulid} class=${block.location} style=${bar(block.minTime, block.maxTime)}
      title=${`level ${block.compaction.level}, ${count(block.stats.numSamples)} samples, ${bytes(block.bytes)}`}></i>`)}</div>`)}
    <div class="ticks">${times.map((tick, idx) => html`<span key=${tick} style=${{ left: `${at(tick * 1000)}%` }}>${texts[idx]?.replace("\n", " ")}</span>`)}</div></div>
    <div class="bar soft">${hasHead && html`<span class="key"><i class="head"></i>head</span>`}${Object.entries(LOCATIONS).filter(([name]) => shown.some(block => block.location === name)).map(([name, text]) => html`<span class="key" key=${name}><i class=${name}></i>${text}</span>`)}
      ${lanes.some(lane => lane >= LANES_MAX) && html`<span>Blocks that overlap more than ${LANES_MAX} times are in the table alone.</span>`}</div>`;
}
