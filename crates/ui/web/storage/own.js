// The server's own metrics, which it stores as series: values of now, and when the disk is full.
import { data } from "../api.js";

/** Tenant that has the metrics of the server, where there are several. */
const OWN_TENANT = "anonymous";
/** Range of the trend of free disk space, and the samples that it needs at least. */
const TREND = "6h", TREND_SAMPLES_MIN = 60;
const FREE = "chronolith_disk_free_bytes";
const NAMES = ["chronolith_checkpoint_bytes", "chronolith_checkpoint_tail_bytes", "chronolith_checkpoint_tail_replay_seconds", "chronolith_flush_waiting_windows", "chronolith_compaction_step_bytes", "chronolith_compaction_step_moved_bytes", FREE];

/** @typedef {{ values: Record<string, number>, trend: number | null }} Own `trend`: bytes of free space per second; null while too short to tell. */

/** @param {AbortSignal} signal @returns {Promise<Own>} */
export async function ownMetrics(signal) {
  const ask = async (/** @type {string} */ query) => (await data("api/v1/query", { query }, signal, OWN_TENANT)).result;
  const [now, slopes] = await Promise.all([ask(`max by (__name__) ({__name__=~"${NAMES.join("|")}"})`), ask(`max(deriv(${FREE}[${TREND}]) and count_over_time(${FREE}[${TREND}]) >= ${TREND_SAMPLES_MIN})`)]);
  /** @type {Record<string, number>} */
  const values = {};
  for (const { metric, value } of now) values[metric.__name__] = Number(value[1]);
  return { values, trend: slopes[0] ? Number(slopes[0].value[1]) : null };
}

/** Seconds until no space is left; Infinity if it does not shrink, null if it is not known. @param {number | null | undefined} free Bytes. @param {number | null} trend */
export function secondsUntilFull(free, trend) {
  if (free == null || trend == null) return null;
  return trend < 0 ? free / -trend : Infinity;
}
