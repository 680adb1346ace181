// Settings of the server with value, default and origin, and its configuration as YAML.
import { html } from "../lib/ui.js";
import { Fault, usePolled } from "../polled.js";
import { route } from "../route.js";
import { Choice, hasWords, Search } from "../widgets.js";

/** @typedef {{ name: string, value: string, default: string | null, origin: string }} Setting */

export function Page() {
  const { params } = route.value, filter = params.get("search") ?? "", isChangedOnly = params.get("kind") === "changed";
  const settings = usePolled("api/v1/status/settings", 0), config = usePolled("api/v1/status/config", 0), build = usePolled("api/v1/status/buildinfo", 0);
  /** @type {Setting[]} */
  const all = settings.value ?? [], found = all.filter(one => (!isChangedOnly || one.origin !== "default") && hasWords(`${one.name} ${one.value} ${one.origin}`, filter));
  return html`<section class="panel"><h1>Settings</h1><${Fault} error=${settings.error ?? config.error} />
    <p class="soft">${build.value && `Chronolith ${build.value.chronolithVersion}, API of Prometheus ${build.value.version}.`} <a href="api/v1/status/settings">Settings as JSON</a> · <a href="metrics">Metrics of this server</a></p>
    <div class="bar"><${Search} name="search" label="Filter settings" /><${Choice} name="kind" label="Settings" choices=${[["", "all"], ["changed", "not at their default"]]} /></div>
    <div class="rows" tabindex="0" role="region" aria-label="Settings"><table><thead><tr><th>setting</th><th>value</th><th>default</th><th>origin</th></tr></thead><tbody>${found.map(one => html`<tr key=${one.name}><td class="mono">${one.name}</td><td class="mono" title=${one.value}>${one.value}</td>
      <td class="mono" title=${one.default ?? ""}>${one.default ?? "–"}</td><td>${one.origin}</td></tr>`)}</tbody></table></div>
    ${config.value && html`<h2>Configuration</h2><pre class="mono" tabindex="0">${config.value.yaml}</pre>`}</section>`;
}
