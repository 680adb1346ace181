// Storage: sizes of head, WAL and disk, blocks on a time line, memory by part and tenant, and the bucket.
import { html, useEffect, useState } from "../lib/ui.js";
import { bytes, count, duration, rangeText, timeText } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { route } from "../route.js";
import { heads } from "../widgets.js";
import { Blocks } from "../storage/blocks.js";
import { Memory } from "../storage/memory.js";
import { ownMetrics, secondsUntilFull } from "../storage/own.js";

const REFRESH_MS = 5000;
const BLOCKS_REFRESH_MS = 60_000;
const OWN_REFRESH_MS = 60_000;
const FULL_SECONDS_MAX = 365 * 86_400;

export function Page() {
  const { params } = route.value, utc = params.get("tz") === "utc";
  const storage = usePolled("api/v1/status/storage", REFRESH_MS), memory = usePolled("api/v1/status/memory", REFRESH_MS), bucket = usePolled("api/v1/status/bucket", REFRESH_MS);
  const blocks = usePolled("api/v1/status/tsdb/blocks", BLOCKS_REFRESH_MS), head = usePolled("api/v1/status/tsdb?limit=1", BLOCKS_REFRESH_MS);
  const window = { min: head.value?.headStats.numSeries ? head.value.headStats.minTime : null, max: head.value?.headStats.maxTime ?? null, series: head.value?.headStats.numSeries ?? 0 };
  return html`<section class="panel"><h1>Storage</h1><${Fault} error=${storage.error ?? memory.error ?? bucket.error} />
    ${storage.value && html`<${Sizes} state=${storage.value} utc=${utc} />`}
    <${Fault} error=${blocks.error} />
    ${blocks.value && html`<${Blocks} blocks=${blocks.value.blocks} head=${window} utc=${utc} />`}
    ${memory.value && html`<${Memory} state=${memory.value} />`}
    ${bucket.value && html`<${Bucket} state=${bucket.value} />`}</section>`;
}

/** The server's own metrics, again every minute; empty while they are not there. */
function useOwn() {
  const [own, setOwn] = useState(/** @type {import("../storage/own.js").Own} */ ({ values: {}, growth: null }));
  useEffect(() => {
    const stop = new AbortController();
    const refresh = () => ownMetrics(stop.signal).then(setOwn, () => { /* Without self-scrape there are none. */ });
    refresh();
    const timer = setInterval(refresh, OWN_REFRESH_MS);
    return () => { stop.abort(); clearInterval(timer); };
  }, []);
  return own;
}

/** @param {number | null} seconds */
const fullText = seconds => (seconds === null ? "not known yet" : seconds > FULL_SECONDS_MAX ? "not within a year" : `in ${rangeText(seconds > 86_400 ? Math.round(seconds / 3600) * 3600 : Math.round(seconds / 60) * 60)}`);

/** @param {{ state: any, utc: boolean }} props */
function Sizes({ state, utc }) {
  const { values, growth } = useOwn();
  const time = (/** @type {number | null} */ ms) => (ms == null ? "–" : timeText(Math.floor(ms / 1000), utc));
  const free = state.diskFreeBytes ?? values.chronolith_disk_free_bytes, checkpoint = values.chronolith_checkpoint_bytes, step = values.chronolith_compaction_step_bytes;
  /** @type {[string, string][]} */
  const facts = [
    [count(state.headSeries), "series in the head"], [count(state.headChunks), "chunks in the head"], [count(state.blocks), "blocks"], [bytes(state.blockBytes), "in blocks"],
    [bytes(checkpoint == null ? state.walBytes : Math.max(0, state.walBytes - checkpoint)), checkpoint == null ? "WAL and checkpoint" : "WAL"], ...(checkpoint == null ? [] : /** @type {[string, string][]} */ ([[bytes(checkpoint), "checkpoint"]])),
    [values.chronolith_checkpoint_tail_replay_seconds == null ? "–" : duration(1000 * values.chronolith_checkpoint_tail_replay_seconds), "replay time"], [count(values.chronolith_flush_waiting_windows), "pending flushes"],
    [step ? `${Math.round((100 * (values.chronolith_compaction_step_moved_bytes ?? 0)) / (2 * step))} %` : "none", "compaction running"], [bytes(free), "free on the disk"], [fullText(secondsUntilFull(free, growth)), "disk full"],
    [count(state.samplesAppended), "samples appended"], [count(state.samplesRejected), "samples rejected"], [count(state.tenants), "tenants"],
  ];
  return html`<${Facts} facts=${facts} />
  <p class="soft">Version ${state.version}, started ${time(Date.parse(state.startTime))}, replay ${duration(state.replayMs)}. Head from ${time(state.headMinTime)} to ${time(state.headMaxTime)}. <i>Disk full</i> is the time until blocks and WAL fill the free space, by their growth in the last 6 hours.</p>
  ${(state.replayNotes ?? []).map((/** @type {string} */ text) => html`<div class="note" key=${text}>${text}</div>`)}`;
}

/** @param {{ state: any }} props */
function Bucket({ state }) {
  const { cache, requests, uploads } = state;
  /** @type {[string, string][]} */
  const facts = [[count(state.blocks), "blocks"], [bytes(state.blockBytes), "in blocks"], [bytes(cache.headerBytes + cache.rangeBytes + cache.inFlightBytes), `of ${bytes(cache.budgetBytes)} memory`], [count(cache.hits), "hits"], [count(cache.misses), "misses"], [count(requests.inFlight), "requests in flight"]];
  if (requests.firstByteMs != null) facts.push([duration(requests.firstByteMs), "to the first byte"]);
  if (cache.disk) facts.push([bytes(cache.disk.bytes), "on disk"], [count(cache.disk.hits), "hits on disk"]);
  if (uploads) facts.push([count(uploads.waitingBlocks), "blocks wait for their upload"], [bytes(uploads.waitingBytes), "to upload"]);
  return html`<h2>Bucket ${state.url}${state.readOnly ? ", read-only" : ""}</h2><${Facts} facts=${facts} />
    <div class="rows" tabindex="0" role="region" aria-label="Requests to the bucket"><table><thead>${heads(["operation", "#requests", "#failed", "#received", "#sent", "#mean"])}</thead>
      <tbody>${requests.operations.filter((/** @type {any} */ found) => found.requests).map((/** @type {any} */ found) => html`<tr key=${found.operation}><td>${found.operation}</td><td class="value">${count(found.requests)}</td><td class="value">${count(found.failed)}</td><td class="value">${bytes(found.receivedBytes)}</td><td class="value">${bytes(found.sentBytes)}</td><td class="value">${duration(found.meanMs)}</td></tr>`)}</tbody></table></div>`;
}
