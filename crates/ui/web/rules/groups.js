// Groups of rules of the server, fetched again while the page is visible.
// Not here: what is made of an answer (model.js).
import { useEffect, useState } from "../lib/ui.js";
import { data } from "../api.js";
import { useRefresh } from "../query/refresh.js";
import { route } from "../route.js";
import { flatMapInTasks } from "../tasks.js";
import { groupOf } from "./model.js";

const REFRESH_S = 15;
/** Pause as a multiple of the time that the last answer took, so that large answers are asked for less often. */
const PAUSE_FACTOR = 10;

/** @typedef {{ tenant: string | null, groups: import("./model.js").Group[] | null, error: any, tookS: number }} State */

/** Groups with rules of one type, or all with "". @param {"" | "alert" | "record"} type @returns {{ groups: import("./model.js").Group[] | null, error: any }} */
export function useGroups(type) {
  const tenant = route.value.params.get("tenant"), [runs, setRuns] = useState(0), [isRunning, setRunning] = useState(true);
  const [state, setState] = useState(/** @type {State} */ ({ tenant, groups: null, error: null, tookS: 0 }));
  useEffect(() => {
    const stop = new AbortController(), start = performance.now();
    const fetchGroups = async () => {
      try {
        const found = await data("api/v1/rules", { ...(type && { type }), extended: "1" }, stop.signal);
        const groups = await flatMapInTasks(/** @type {any[]} */ (found.groups), groupOf, stop.signal);
        setState({ tenant, groups, error: null, tookS: (performance.now() - start) / 1000 });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState(now => ({ ...now, tenant, groups: now.tenant === tenant ? now.groups : null, error }));
      }
      setRunning(false);
    };
    setRunning(true);
    fetchGroups();
    return () => stop.abort();
  }, [tenant, type, runs]);
  useRefresh(Math.max(REFRESH_S, PAUSE_FACTOR * state.tookS), isRunning, runs, () => setRuns(now => now + 1));
  // Groups of another tenant are not shown for this one.
  return state.tenant === tenant ? state : { groups: null, error: null };
}
