// Cluster: roles of this process, the partition map, and owners of partitions with their positions in the log.
// Not here: metrics of the log (query page).
import { html } from "../lib/ui.js";
import { bytes, count, duration, timeText } from "../format.js";
import { Facts, Fault, usePolled } from "../polled.js";
import { route } from "../route.js";
import { distanceOf, ownersOf } from "../cluster/owners.js";
import { heads } from "../widgets.js";

const REFRESH_MS = 5000;

export function Page() {
  const utc = route.value.params.get("tz") === "utc";
  const { value, error } = usePolled("api/v1/status/cluster", REFRESH_MS);
  // A server of its own answers null, as does one that has not answered yet.
  const { value: build } = usePolled("api/v1/status/buildinfo", 0);
  return html`<section class="panel"><h1>Cluster</h1><${Fault} error=${error} />
    ${!value && !error && build && html`<p class="empty">This server has role all: it is in no cluster.</p>`}
    ${value && html`<${State} state=${value} utc=${utc} />`}</section>`;
}

/** @param {{ state: any, utc: boolean }} props */
function State({ state, utc }) {
  const { gateway, owner, query } = state, owners = ownersOf(state), map = gateway?.map ?? query?.map;
  /** @type {[string, string][]} */
  const facts = [[state.roles.join(", "), "roles"], [state.unready ? "no" : "yes", "ready"]];
  if (gateway) facts.push([count(gateway.partitions), "partitions accept writes"], [count(gateway.appendedRecords), "records appended"], [bytes(gateway.appendedBytes), "appended"], [bytes(gateway.inFlightBytes), "in flight"], [count(gateway.possiblyWrittenRecords), "records possibly written"]);
  if (owner) facts.push([count(owner.appliedRecords), "records applied"], [count(owner.rejectedSamples), "samples rejected"], [count(owner.openWindows), "open windows"], [count(owner.heldCuts), "cuts in memory"], [count(owner.publishedBlocks), "blocks published"], [count(owner.clockAheadRecords), "records of clocks ahead"], [count(owner.openDeletions), "open deletions"]);
  if (query) facts.push([count(query.askedPartitions.length), "partitions asked"], [count(query.unavailablePartitions.length), "without a ready owner"], [count(query.owners.length), "owners found"], [query.lookupAgeSeconds == null ? "–" : duration(1000 * query.lookupAgeSeconds), "since the last lookup"]);
  const notes = [state.unready, owner?.fault && owner.fault !== state.unready ? owner.fault : null, owner?.publicationFault && `publication: ${owner.publicationFault}`, owner?.cutWaitsForDeletion != null && `A cut waits for deletion ${owner.cutWaitsForDeletion}.`, query?.lookupFault && `lookup of owners: ${query.lookupFault}`];
  return html`<${Facts} facts=${facts} />
    ${notes.filter(Boolean).map(text => html`<div class="note" key=${text}>${text}</div>`)}
    ${owners.length > 0 && html`<${Owners} owners=${owners} />`}
    ${map && html`<${Partitions} map=${map} utc=${utc} />`}`;
}

/** @param {{ owners: import("../cluster/owners.js").Owner[] }} props */
const Owners = ({ owners }) => html`<h2>Owners</h2>
  <div class="rows tall" tabindex="0" role="region" aria-label="Owners"><table class="tops"><thead>${heads(["#partition", "owner", "state", "#lag", "#next offset", "#resume", "#log start", "#distance", "#refused"])}</thead>
    <tbody>${owners.map(one => html`<tr key=${`${one.partition} ${one.address}`} class=${one.trouble ? "unready" : ""}><td class="value">${one.partition ?? "–"}</td><td class="mono">${one.address}</td><td class="prose">${one.trouble ?? "ready"}</td>
      <td class="value">${one.lagSeconds == null ? "–" : duration(1000 * one.lagSeconds)}</td><td class="value">${count(one.nextOffset)}</td><td class="value">${count(one.resumeOffset)}</td><td class="value">${count(one.logStart)}</td>
      <td class="value">${count(distanceOf(one))}</td><td class="value">${count(one.refusedRecords)}</td></tr>`)}</tbody></table></div>
  <p class="soft"><i>Resume</i> is the oldest record with a sample in no block. <i>Distance</i> is its distance from the start of the log: at 0 the log has removed records that no block has.</p>`;

/** @param {{ map: any, utc: boolean }} props */
const Partitions = ({ map, utc }) => {
  const time = (/** @type {string | null} */ text) => (text ? timeText(Math.floor(Date.parse(text) / 1000), utc) : "");
  return html`<h2>Partition map ${map.number}</h2>
    <div class="rows" tabindex="0" role="region" aria-label="Partition map"><table><thead>${heads(["#partition", "writes", "since", "owner needed until"])}</thead>
      <tbody>${map.partitions.map((/** @type {any} */ one) => html`<tr key=${one.partition}><td class="value">${one.partition}</td><td>${one.accepting ? "accepted" : "drained"}</td><td>${time(one.since)}</td><td>${time(one.ownerNeededUntil)}</td></tr>`)}</tbody></table></div>`;
};
