// The server's own metrics, which it stores as series: values of now, and when the disk is full.
import { data } from "../api.js";

/** Tenant that has the metrics of the server, where there are several. */
const OWN_TENANT = "anonymous";
/** Range of the growth of blocks and WAL: a server that is younger has no trend. */
const TREND = "6h";
const FREE = "chronolith_disk_free_bytes", OWN_BYTES = "(chronolith_block_bytes + chronolith_wal_bytes)";
const NAMES = ["chronolith_checkpoint_bytes", "chronolith_checkpoint_tail_bytes", "chronolith_checkpoint_tail_replay_seconds", "chronolith_flush_waiting_windows", "chronolith_compaction_step_bytes", "chronolith_compaction_step_moved_bytes", FREE];

/** @typedef {{ values: Record<string, number>, growth: number | null }} Own `growth`: bytes of blocks and WAL per second; null while the server is too young to tell. */

/** @param {AbortSignal} signal @returns {Promise<Own>} */
export async function ownMetrics(signal) {
  const ask = async (/** @type {string} */ query) => (await data("api/v1/query", { query }, signal, OWN_TENANT)).result;
  const [now, slopes] = await Promise.all([ask(`max by (__name__) ({__name__=~"${NAMES.join("|")}"})`), ask(`max(deriv(${OWN_BYTES}[${TREND}:1m]) and ${OWN_BYTES} offset ${TREND})`)]);
  /** @type {Record<string, number>} */
  const values = {};
  for (const { metric, value } of now) values[metric.__name__] = Number(value[1]);
  return { values, growth: slopes[0] ? Number(slopes[0].value[1]) : null };
}

/** Seconds until no space is left; Infinity without growth, null if it is not known. @param {number | null | undefined} free Bytes. @param {number | null} growth */
export function secondsUntilFull(free, growth) {
  if (free == null || growth == null) return null;
  return growth > 0 ? free / growth : Infinity;
}
