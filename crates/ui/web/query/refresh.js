// Automatic refresh of the query page: choices, the parameter `refresh` of the address, the timer of a panel.
// Invariant: the next request starts an interval after the answer of the one before, never while the tab is hidden.
import { html, useEffect } from "../lib/ui.js";
import { rangeSeconds, rangeText } from "../format.js";
import { patch, route } from "../route.js";

const CHOICES = [5, 10, 30, 60, 300];
/** A shorter interval in an address counts as this one. */
const SECONDS_MIN = 1;

/** Interval in the address in seconds; 0 is off. @param {URLSearchParams} params */
export function refreshSeconds(params) {
  const seconds = rangeSeconds(params.get("refresh") ?? "");
  return seconds > 0 ? Math.max(SECONDS_MIN, seconds) : 0;
}

/** Calls `run` an interval after each answer; at once when a hidden tab is shown after that time. @param {number} seconds 0: never. @param {boolean} isRunning @param {unknown} runs Changes with each run. @param {() => void} run */
export function useRefresh(seconds, isRunning, runs, run) {
  useEffect(() => {
    if (!seconds || isRunning) return;
    const due = Date.now() + 1000 * seconds;
    let timer = 0;
    const arm = () => {
      clearTimeout(timer);
      if (!document.hidden) timer = window.setTimeout(run, Math.max(0, due - Date.now()));
    };
    arm();
    document.addEventListener("visibilitychange", arm);
    return () => { clearTimeout(timer); document.removeEventListener("visibilitychange", arm); };
  }, [seconds, isRunning, runs]);
}

/** The choice for all panels of the page. */
export function Refresh() {
  const seconds = refreshSeconds(route.value.params);
  const choices = !seconds || CHOICES.includes(seconds) ? CHOICES : [...CHOICES, seconds].sort((a, b) => a - b);
  return html`<label title="Runs all queries again, while the tab is visible; panels with a fixed end stay as they are">Refresh
    <select value=${seconds} onChange=${(/** @type {any} */ event) => patch({ refresh: Number(event.target.value) ? rangeText(Number(event.target.value)) : undefined }, "replace")}>
      <option value="0">off</option>${choices.map(choice => html`<option key=${choice} value=${choice}>${rangeText(choice)}</option>`)}</select></label>`;
}
