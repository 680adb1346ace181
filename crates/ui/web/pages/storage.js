// Storage: sizes of head, WAL and blocks, memory by part, and the bucket.
import { html } from "../lib/ui.js";
import { bytes, count, duration, timeText } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { route } from "../route.js";

const REFRESH_MS = 5000;

export function Page() {
  const storage = usePolled("api/v1/status/storage", REFRESH_MS), memory = usePolled("api/v1/status/memory", REFRESH_MS), bucket = usePolled("api/v1/status/bucket", REFRESH_MS);
  return html`<section class="panel"><h1>Storage</h1><${Fault} error=${storage.error ?? memory.error ?? bucket.error} />
    ${storage.value && html`<${Sizes} state=${storage.value} />`}
    ${memory.value && html`<${Memory} state=${memory.value} />`}
    ${bucket.value && html`<${Bucket} state=${bucket.value} />`}</section>`;
}

/** @param {{ state: any }} props */
function Sizes({ state }) {
  const utc = route.value.params.get("tz") === "utc";
  const time = (/** @type {number | null} */ ms) => (ms == null ? "–" : timeText(Math.floor(ms / 1000), utc));
  return html`<${Facts} facts=${[
    [count(state.headSeries), "series in the head"], [count(state.headChunks), "chunks in the head"], [count(state.blocks), "blocks"], [bytes(state.blockBytes), "in blocks"], [bytes(state.walBytes), "WAL and checkpoint"],
    [count(state.samplesAppended), "samples appended"], [count(state.samplesRejected), "samples rejected"], [count(state.tenants), "tenants"],
  ]} />
  <p class="soft">Version ${state.version}, started ${time(Date.parse(state.startTime))}, replay ${duration(state.replayMs)}. Head from ${time(state.headMinTime)} to ${time(state.headMaxTime)}.</p>
  ${(state.replayNotes ?? []).map((/** @type {string} */ text) => html`<div class="note" key=${text}>${text}</div>`)}`;
}

/** @param {{ state: any }} props */
function Memory({ state }) {
  /** @type {[string, number][]} */
  const parts = Object.entries(/** @type {Record<string, Record<string, { bytes: number }>>} */ (state.parts)).flatMap(([group, found]) => Object.entries(found).map(([name, part]) => /** @type {[string, number]} */ ([`${group} ${name}`.replaceAll("_", " "), part.bytes])));
  parts.push(["in no part", Math.max(0, state.unaccountedBytes || 0)], ["pages of files", state.process.fileBytes || 0]);
  const found = parts.filter(part => part[1] > 0).sort((a, b) => b[1] - a[1]), most = found[0]?.[1] || 1;
  return html`<h2>Memory${state.process.residentBytes == null ? "" : `, ${bytes(state.process.residentBytes)} resident`}</h2>
    <div class="rows" tabindex="0" role="region" aria-label="Memory by part"><table><tbody>${found.map(([name, size]) => html`<tr key=${name}><td>${name}</td>
      <td><span class="bars" aria-hidden="true"><i class="own" style=${{ width: `${(100 * size) / most}%` }}></i></span></td><td class="value">${bytes(size)}</td></tr>`)}</tbody></table></div>`;
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
    <div class="rows" tabindex="0" role="region" aria-label="Requests to the bucket"><table><thead><tr><th>operation</th><th>requests</th><th>failed</th><th>received</th><th>sent</th><th>mean</th></tr></thead>
      <tbody>${requests.operations.filter((/** @type {any} */ found) => found.requests).map((/** @type {any} */ found) => html`<tr key=${found.operation}><td>${found.operation}</td><td class="value">${count(found.requests)}</td><td class="value">${count(found.failed)}</td><td class="value">${bytes(found.receivedBytes)}</td><td class="value">${bytes(found.sentBytes)}</td><td class="value">${duration(found.meanMs)}</td></tr>`)}</tbody></table></div>`;
}
