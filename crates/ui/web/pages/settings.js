// Settings of the server with their values, and its configuration as YAML.
import { html } from "../lib/ui.js";
import { Fault, usePolled } from "../polled.js";
import { route } from "../route.js";
import { Search } from "../widgets.js";

export function Page() {
  const filter = route.value.params.get("search") ?? "";
  const flags = usePolled("api/v1/status/flags", 0), config = usePolled("api/v1/status/config", 0), build = usePolled("api/v1/status/buildinfo", 0);
  const found = Object.entries(/** @type {Record<string, string>} */ (flags.value ?? {})).filter(pair => pair.join(" ").toLowerCase().includes(filter.toLowerCase()));
  return html`<section class="panel"><h1>Settings</h1><${Fault} error=${flags.error ?? config.error} />
    <p class="soft">${build.value && `Chronolith ${build.value.chronolithVersion}, API of Prometheus ${build.value.version}.`} <a href="api/v1/status/flags">Settings as JSON</a> · <a href="metrics">Metrics of this server</a></p>
    <${Search} name="search" label="Filter settings" />
    <div class="rows" tabindex="0" role="region" aria-label="Settings"><table><thead><tr><th>setting</th><th>value</th></tr></thead><tbody>${found.map(([name, value]) => html`<tr key=${name}><td class="mono">${name}</td><td class="mono" title=${value}>${value}</td></tr>`)}</tbody></table></div>
    ${config.value && html`<h2>Configuration</h2><pre class="mono" tabindex="0">${config.value.yaml}</pre>`}</section>`;
}
