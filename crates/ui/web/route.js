// Address of the interface: the page and its parameters, as a signal.
// Invariant: what a page shows follows from its address, so links and the buttons of the browser work.
import { signal } from "./lib/ui.js";

/** Pages by the last part of the path; the second names are Prometheus's. @type {Record<string, string>} */
const PAGES = {
  "": "query", graph: "query", query: "query", explore: "explore", cardinality: "cardinality", "tsdb-status": "cardinality",
  storage: "storage", cluster: "cluster", queries: "queries", tenants: "tenants", rejects: "rejects", plan: "plan", alerts: "alerts", rules: "rules", settings: "settings", config: "settings", flags: "settings",
};

function read() {
  const last = location.pathname.slice(location.pathname.lastIndexOf("/") + 1);
  return { page: PAGES[last] ?? "query", params: new URLSearchParams(location.search) };
}

export const route = signal(read());
/** Panels of the query page, for the way back to it. */
let panels = "";

/** Address of a page with parameters; the tenant stays. @param {string} page @param {Record<string, string | undefined>} [params] */
export function hrefOf(page, params = {}) {
  const kept = new URLSearchParams(page === "query" && !Object.keys(params).length ? panels : "");
  const tenant = route.value.params.get("tenant");
  if (tenant) kept.set("tenant", tenant);
  for (const [name, value] of Object.entries(params)) if (value) kept.set(name, value);
  const text = kept.toString();
  return (page === "query" ? "./" : page) + (text ? "?" + text : "");
}

/** @param {string} href @param {"push" | "replace"} [how] */
export function go(href, how = "push") {
  history[how === "push" ? "pushState" : "replaceState"](null, "", href);
  follow();
}

/** Changes parameters of the current page; empty ones go. @param {Record<string, string | undefined>} changes @param {"push" | "replace"} [how] */
export function patch(changes, how = "push") {
  const params = new URLSearchParams(route.value.params);
  for (const [name, value] of Object.entries(changes)) value ? params.set(name, value) : params.delete(name);
  if (params.toString() !== route.value.params.toString()) go(location.pathname + "?" + params, how);
}

function follow() {
  const next = read();
  if (next.page === "query") panels = next.params.toString();
  route.value = next;
}

addEventListener("popstate", follow);
document.addEventListener("click", event => {
  const link = event.target instanceof Element ? event.target.closest("a[data-page]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  go(link.href);
});
follow();
