// A status of the server, fetched when a page opens and again every few seconds.
import { html, useEffect, useState } from "./lib/ui.js";
import { data } from "./api.js";
import { route } from "./route.js";

/** Fetches `path`, if it is not empty, every `everyMs` (0: once) while the page is visible. @param {string} path @param {number} everyMs @param {unknown} [again] A change of it fetches at once. @returns {{ value: any, error: any }} */
export function usePolled(path, everyMs, again) {
  const [state, setState] = useState(/** @type {{ value: any, error: any }} */ ({ value: null, error: null }));
  const tenant = route.value.params.get("tenant");
  useEffect(() => {
    if (!path) return;
    const stop = new AbortController();
    let timer = 0;
    const refresh = async () => {
      try {
        if (!document.hidden) setState({ value: await data(path, {}, stop.signal), error: null });
      } catch (error) {
        if (!stop.signal.aborted) setState(now => ({ ...now, error }));
      }
      if (everyMs && !stop.signal.aborted) timer = window.setTimeout(refresh, everyMs);
    };
    refresh();
    return () => { stop.abort(); clearTimeout(timer); };
  }, [path, everyMs, tenant, again]);
  return state;
}

/** @param {{ error: any }} props */
export const Fault = ({ error }) => (error ? html`<div class="error" role="alert">${error.message}</div>` : null);

/** Figures with a label each. @param {{ facts: [string, string][] }} props */
export const Facts = ({ facts }) => html`<dl class="facts">${facts.map(([value, label]) => html`<div key=${label}><dt>${label}</dt><dd>${value}</dd></div>`)}</dl>`;
