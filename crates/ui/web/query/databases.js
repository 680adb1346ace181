// Database of a panel of InfluxQL: a field that offers those of the server, and takes the only one by itself.
import { html, useEffect, useState } from "../lib/ui.js";
import { post } from "../api.js";

/** InfluxDB's database of its own metrics, which is not meant by default. */
const INTERNAL = "_internal";

/** The database to take where none was chosen: the only one, if there is only one. @param {string[]} names */
export function onlyOf(names) {
  const own = names.filter(name => name !== INTERNAL);
  return own.length === 1 ? own[0] : undefined;
}

/** @param {{ db: string, tenant: string, onChoose: (db: string) => void, onOnly: (db: string) => void }} props `onOnly` takes the only database. */
export function Database({ db, tenant, onChoose, onOnly }) {
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    const stop = new AbortController();
    post("query", { q: "SHOW DATABASES" }, stop.signal).then(
      json => setNames((json.results[0]?.series?.[0]?.values ?? []).map((/** @type {[string]} */ [name]) => name)), () => { /* The field still takes a name. */ });
    return () => stop.abort();
  }, [tenant]);
  const only = onlyOf(names);
  useEffect(() => { if (!db && only) onOnly(only); }, [db, only]);
  return html`<label>Database <input value=${db} size="14" list="databases" spellcheck=${false} onChange=${(/** @type {any} */ event) => onChoose(event.target.value.trim())} /></label>
    <datalist id="databases">${names.map(name => html`<option key=${name} value=${name}></option>`)}</datalist>`;
}
