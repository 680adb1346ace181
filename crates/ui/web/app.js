// First module of the interface: the shell and the page that the address names.
// Pages other than the query page are loaded when they are opened.
import { html, render, signal } from "./lib/ui.js";
import { QueryPage } from "./pages/query.js";
import { route } from "./route.js";
import { Shell } from "./shell.js";

/** @type {Record<string, () => Promise<{ Page: any }>>} */
const LOADERS = {
  explore: () => import("./pages/explore.js"),
  cardinality: () => import("./pages/cardinality.js"),
  storage: () => import("./pages/storage.js"),
  queries: () => import("./pages/queries.js"),
  cluster: () => import("./pages/cluster.js"),
  tenants: () => import("./pages/tenants.js"),
  rejects: () => import("./pages/rejects.js"),
  plan: () => import("./pages/plan.js"),
  rules: () => import("./pages/rules.js"),
  alerts: () => import("./pages/alerts.js"),
  settings: () => import("./pages/settings.js"),
};
/** Pages that are loaded, and those whose modules are gone after an upgrade of the server. */
const loaded = signal(/** @type {Record<string, any>} */ ({ query: QueryPage }));
const Gone = () => html`<p class="error" role="alert">This page is not there: the server may have been upgraded. Load the page again.</p>`;

/** @param {string} page */
async function load(page) {
  let found = Gone;
  try {
    found = (await /** @type {() => Promise<{ Page: any }>} */ (LOADERS[page])()).Page;
  } catch { /* `Gone` says it. */ }
  loaded.value = { ...loaded.value, [page]: found };
}

function App() {
  const { page } = route.value, Page = loaded.value[page];
  if (!Page) load(page);
  return html`<${Shell}>${Page ? html`<${Page} />` : html`<p class="empty">…</p>`}<//>`;
}

render(html`<${App} />`, document.body);
performance.mark("ready");
