// Alerts: those of /api/v1/alerts, flat. Not in the navigation while the server has no rules.
import { html, useState } from "../lib/ui.js";
import { seriesText } from "../format.js";
import { Fault, usePolled } from "../polled.js";

const ROWS_MAX = 1000;

export function Page() {
  const [filter, setFilter] = useState("");
  const { value, error } = usePolled("api/v1/alerts", 10_000);
  const found = (value?.alerts ?? []).map((/** @type {any} */ alert) => ({ ...alert, text: seriesText(alert.labels ?? {}) })).filter((/** @type {any} */ alert) => `${alert.state} ${alert.text}`.toLowerCase().includes(filter.toLowerCase()));
  return html`<section class="panel"><h1>Alerts</h1><${Fault} error=${error} />
    ${value && !value.alerts.length && html`<p class="empty">This server evaluates no rules, so it has no alerts.</p>`}
    ${value?.alerts.length > 0 && html`<input type="search" aria-label="Filter alerts" placeholder="state, name, label" value=${filter} onInput=${(/** @type {any} */ event) => setFilter(event.target.value)} />
      <div class="rows tall" tabindex="0" role="region" aria-label="Alerts"><table><tbody>${found.slice(0, ROWS_MAX).map((/** @type {any} */ alert) => html`<tr><td>${alert.state}</td><td class="mono">${alert.text}</td><td class="value">${alert.value}</td></tr>`)}</tbody></table></div>`}</section>`;
}
