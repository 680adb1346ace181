// Frame of every page: navigation, tenant, time zone, colours, list of keys.
// Not here: the pages.
import { html, useEffect, useRef, useState } from "./lib/ui.js";
import { data } from "./api.js";
import { isHelpOpen, keys, register } from "./keys.js";
import { Login, refused } from "./login.js";
import { go, hrefOf, patch, route } from "./route.js";

/** Pages in the order of the navigation: name, title, key after `g`. */
const PAGES = [
  ["query", "Query", "q"], ["explore", "Explore", "e"], ["alerts", "Alerts", "a"], ["rules", "Rules", "l"], ["cardinality", "Cardinality", "c"], ["storage", "Storage", "s"],
  ["cluster", "Cluster", "k"], ["tenants", "Tenants", "n"], ["rejects", "Rejects", "j"], ["queries", "Queries", "r"], ["plan", "Plan", "p"], ["settings", "Settings", "t"],
];
const SCHEMES = ["auto", "light", "dark"];
const STATE_MS = 5000;
/** Names that the field of the tenant offers. */
const TENANTS_MAX = 1000;
const rememberedTenant = () => { try { return localStorage.getItem("tenant") ?? ""; } catch { return ""; } };

const remembered = () => { try { return localStorage.getItem("scheme") ?? "auto"; } catch { return "auto"; } };
/** @param {string} scheme */
export function applyScheme(scheme) {
  document.documentElement.dataset.scheme = scheme;
  try { localStorage.setItem("scheme", scheme); } catch { /* Storage may be off; the choice then ends with the page. */ }
}

function Scheme() {
  const [scheme, setScheme] = useState(remembered);
  useEffect(() => {
    applyScheme(scheme);
    dispatchEvent(new Event("scheme"));
  }, [scheme]);
  const next = () => setScheme(now => SCHEMES[(SCHEMES.indexOf(now) + 1) % SCHEMES.length] ?? "auto");
  useEffect(() => register([{ key: "d", what: "colours: as the system, light, dark", run: next }]), []);
  return html`<button class="quiet" onClick=${next} title="Colours: as the system, light or dark (d)">${{ auto: "Auto", light: "Light", dark: "Dark" }[scheme]}</button>`;
}

function Zone() {
  const utc = route.value.params.get("tz") === "utc";
  const next = () => patch({ tz: route.value.params.get("tz") === "utc" ? undefined : "utc" }, "replace");
  useEffect(() => register([{ key: "u", what: "times in UTC or local", run: next }]), []);
  return html`<button class="quiet" onClick=${next} title="Time zone of all times (u)">${utc ? "UTC" : "Local"}</button>`;
}

/** The tenant of the address, chosen among those that the server knows. Without one in the address the last one is taken, or the first.
 * @param {{ isNeeded: boolean }} props */
function Tenant({ isNeeded }) {
  const tenant = route.value.params.get("tenant") ?? "";
  const [known, setKnown] = useState(/** @type {{ names: string[], isWhole: boolean } | null} */ (null));
  // The field is drawn again when the list of tenants comes, which must not take back a name that is being typed.
  const [typed, setTyped] = useState(/** @type {string | null} */ (null));
  useEffect(() => {
    const stop = new AbortController();
    data(`api/v1/status/tenants?limit=${TENANTS_MAX}&sort=series`, {}, stop.signal).then(
      found => {
        const stored = found.tenants.filter((/** @type {{ stored?: boolean }} */ one) => one.stored !== false);
        setKnown({ names: stored.map((/** @type {{ tenant: string }} */ one) => one.tenant), isWhole: found.tenants.length < TENANTS_MAX });
      }, () => { /* The field still takes a name. */ });
    return () => stop.abort();
  }, [tenant]);
  useEffect(() => {
    if (tenant || !isNeeded || !known?.names.length) return;
    const last = rememberedTenant();
    patch({ tenant: known.names.includes(last) ? last : known.names[0] }, "replace");
  }, [tenant, isNeeded, known]);
  const choose = (/** @type {string} */ name) => {
    try { localStorage.setItem("tenant", name); } catch { /* Storage may be off; the choice is in the address. */ }
    patch({ tenant: name });
  };
  const isUnknown = tenant && known?.isWhole && !known.names.includes(tenant);
  return html`<label class="tenant">Tenant <input value=${typed ?? tenant} size="12" list="tenants" autocapitalize="off" spellcheck=${false} aria-invalid=${isUnknown ? "true" : undefined}
      onInput=${(/** @type {any} */ event) => setTyped(event.target.value)} onBlur=${() => setTyped(null)}
      onChange=${(/** @type {any} */ event) => { choose(event.target.value.trim()); setTyped(null); }} /></label>
    <datalist id="tenants">${(known?.names ?? []).map(name => html`<option key=${name} value=${name}></option>`)}</datalist>
    ${isUnknown && html`<span class="soft" role="status">no such tenant</span>`}`;
}

/** State of the server, and the tenant where there are several. */
function State() {
  const [state, setState] = useState(/** @type {any} */ (null));
  useEffect(() => {
    let ended = false, timer = 0;
    const refresh = async () => {
      let next;
      try { next = await data("api/v1/status/storage"); } catch { next = { failed: true }; }
      if (ended) return;
      setState(next);
      timer = window.setTimeout(refresh, STATE_MS);
    };
    refresh();
    return () => { ended = true; clearTimeout(timer); };
  }, []);
  const trouble = refused.value ? "a login is needed" : !state ? "" : state.failed ? "no answer from the server" : !state.ready ? state.progress : state.walPoisoned ? "writes are refused: writing the WAL failed" : state.diskFull ? "writes are refused: the disk is full" : "";
  return html`
    ${(state?.multitenancy || route.value.params.has("tenant")) && html`<${Tenant} isNeeded=${Boolean(state?.multitenancy)} />`}
    <span class="state" role="status"><i class=${"dot " + (trouble ? "bad" : state ? "good" : "")}></i>${trouble || (state ? "ready" : "…")}</span>`;
}

function Help() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const open = isHelpOpen.value;
  useEffect(() => { open ? dialog.current?.showModal() : dialog.current?.close(); }, [open]);
  return html`<dialog ref=${dialog} aria-labelledby="keys-title" onClose=${() => { isHelpOpen.value = false; }}>
    <h2 id="keys-title">Keys</h2>
    <table class="keys"><tbody>
      <tr><td><kbd>?</kbd></td><td>this list</td></tr>
      ${keys.value.map(({ key, what }) => html`<tr key=${key}><td>${key.split(" ").map(part => html`<kbd>${part}</kbd> `)}</td><td>${what}</td></tr>`)}
      <tr><td><kbd>Enter</kbd></td><td>in the editor: run; with Shift a new line</td></tr>
      <tr><td><kbd>Ctrl</kbd> <kbd>Space</kbd></td><td>in the editor: complete</td></tr>
      <tr><td><kbd>Alt</kbd> <kbd>↑</kbd></td><td>in the editor: earlier queries</td></tr>
      <tr><td><kbd>Esc</kbd></td><td>leaves the editor, closes this list</td></tr>
    </tbody></table>
    <button onClick=${() => { isHelpOpen.value = false; }}>Close</button>
  </dialog>`;
}

/** Returns true once the server is known to have a role in a cluster. */
function useCluster() {
  const [isCluster, setCluster] = useState(false);
  useEffect(() => {
    const stop = new AbortController();
    data("api/v1/status/cluster", {}, stop.signal).then(found => setCluster(found !== null), () => { /* The page is still at its address. */ });
    return () => stop.abort();
  }, []);
  return isCluster;
}

/** @param {{ children: any }} props */
export function Shell({ children }) {
  const { page } = route.value, isCluster = useCluster();
  useEffect(() => register(PAGES.map(([name, title, key]) => ({ key: `g ${key}`, what: `open ${title}`, run: () => go(hrefOf(/** @type {string} */ (name))) }))), []);
  const nav = useRef(/** @type {HTMLElement | null} */ (null));
  // On a phone the navigation scrolls: the page in view is in view there, too.
  useEffect(() => {
    const box = nav.current, observer = new ResizeObserver(() => {
      const link = box?.querySelector("[aria-current]");
      if (box && link instanceof HTMLElement) box.scrollLeft = link.offsetLeft - (box.clientWidth - link.offsetWidth) / 2;
    });
    if (box) observer.observe(box);
    return () => observer.disconnect();
  }, [page]);
  useEffect(() => { document.title = `${PAGES.find(entry => entry[0] === page)?.[1] ?? "Query"} · Chronolith`; }, [page]);
  return html`
    <header>
      <a class="brand" href=${hrefOf("query")} data-page="query">Chronolith</a>
      <nav aria-label="Pages" ref=${nav}>${PAGES.filter(([name]) => name !== "cluster" || isCluster || page === name).map(([name = "", title]) => html`<a key=${name} href=${hrefOf(name)} data-page=${name} aria-current=${name === page ? "page" : undefined}>${title}</a>`)}</nav>
      <div class="tools"><${State} /><${Zone} /><${Scheme} /><button class="quiet" onClick=${() => { isHelpOpen.value = true; }} title="Keys (?)" aria-label="Keys">?</button></div>
    </header>
    <main id="main">${children}</main>
    <${Help} />
    <${Login} />`;
}
