// Owners of partitions in the state of a process: its own partition, or those that a query node asks.

/** @typedef {{ partition: number | null, address: string, trouble: string | null, lagSeconds?: number | null, nextOffset?: number | null, resumeOffset?: number | null, logStart?: number | null, refusedRecords?: number | null }} Owner */

/** One row per owner and partition, by partition; partitions and owners that are missing are rows, too. @param {any} state Answer of status/cluster. @returns {Owner[]} */
export function ownersOf({ owner, query }) {
  /** @type {Owner[]} */
  const rows = owner ? [{ ...owner, address: "this server", trouble: owner.fault ?? owner.notReady }] : [];
  for (const node of query?.owners ?? []) {
    for (const one of node.partitions) rows.push({ ...one, address: node.address, trouble: node.fault ?? one.notReady });
    if (!node.partitions.length) rows.push({ partition: null, address: node.address, trouble: node.fault ?? "no report yet" });
  }
  const owned = new Set(rows.map(row => row.partition));
  for (const partition of query?.unavailablePartitions ?? []) if (!owned.has(partition)) rows.push({ partition, address: "–", trouble: "no owner" });
  return rows.sort((a, b) => (a.partition ?? Infinity) - (b.partition ?? Infinity) || (a.address < b.address ? -1 : 1));
}

/** Offsets that the log may remove before it removes a sample that is in no block; null if that is not known. @param {Owner} owner */
export const distanceOf = ({ resumeOffset, logStart }) => (resumeOffset == null || logStart == null ? null : Math.max(0, resumeOffset - logStart));
