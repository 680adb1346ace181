// The answer of the API as text: indented (tab JSON), or with its request and as it came (tab Raw).
// Not here: which request (languages.js).
import { html, useMemo, useState } from "../lib/ui.js";
import { bytes } from "../format.js";
import { pretty } from "./pretty.js";

/** Characters of an answer that the document has; the rest is copied only. */
const SHOWN_MAX = 100_000;

/** A command that sends the same request. @param {string} url @param {string} tenant */
export const curlOf = (url, tenant) => `curl ${tenant ? `-H ${quoted(`X-Scope-OrgID: ${tenant}`)} ` : ""}${quoted(url)}`;

/** @param {string} text */
const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

/** @param {{ raw: import("./languages.js").Raw, panel: import("./panel.js").Panel, tenant: string, onChange: (fields: Partial<import("./panel.js").Panel>) => void }} props */
export function Answer({ raw, panel, tenant, onChange }) {
  const [note, setNote] = useState("");
  const isJson = panel.tab === "json", url = new URL(`${raw.path}?${raw.form}`, document.baseURI).href;
  const text = useMemo(() => (isJson ? pretty(raw.text, SHOWN_MAX) : raw.text.slice(0, SHOWN_MAX)), [raw, isJson]);
  const copy = async (/** @type {string} */ what, /** @type {string} */ whole) => {
    try { await navigator.clipboard.writeText(whole); setNote(`${what} copied`); } catch { setNote("the browser does not allow copying"); }
  };
  return html`<div class="bar">
      ${panel.lang === "promql" && html`<label>Request <select value=${panel.request} onChange=${(/** @type {any} */ event) => onChange({ request: event.target.value })}><option value="range">range query</option><option value="instant">instant query</option></select></label>`}
      <span>${raw.status} · ${raw.type} · ${bytes(raw.text.length)}</span>
      ${!isJson && html`<button onClick=${() => copy("URL", url)}>Copy URL</button><button onClick=${() => copy("Command", curlOf(url, tenant))}>Copy curl</button>`}
      <button onClick=${() => copy("Answer", isJson ? pretty(raw.text) : raw.text)}>Copy answer</button>
      <span class="soft" role="status">${note}</span></div>
    ${!isJson && html`<pre class="request" tabindex="0" aria-label="Request">${url}</pre>`}
    <pre class="answer" tabindex="0" aria-label="Answer">${text}</pre>
    ${(isJson ? text.length >= SHOWN_MAX : raw.text.length > SHOWN_MAX) && html`<p class="soft">The first ${bytes(text.length)} are shown; <i>Copy answer</i> takes all.</p>`}`;
}
