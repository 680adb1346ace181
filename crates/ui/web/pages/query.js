// Query page: panels one below the other, each with an editor, a tab and its result.
// Invariant: a panel shows what its parameters in the address say; only the text being typed is elsewhere.
// Not here: requests (query/languages.js), results (query/graph.js, table.js, heatmap.js, plan/tree.js).
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { data } from "../api.js";
import { count, duration } from "../format.js";
import { register } from "../keys.js";
import { Plan } from "../plan/tree.js";
import { Answer } from "../query/answer.js";
import { Controls } from "../query/controls.js";
import { Database } from "../query/databases.js";
import { Editor } from "../query/editor.js";
import { Graph } from "../query/graph.js";
import { Heatmap } from "../query/heatmap.js";
import { Hint } from "../query/hint.js";
import { earlier, remember } from "../query/history.js";
import { exemplars, run } from "../query/languages.js";
import { isStart, panelCount, panelParams, PANELS_MAX, readPanel, windowOf, withoutPanel } from "../query/panel.js";
import { Refresh, refreshSeconds, useRefresh } from "../query/refresh.js";
import { Table } from "../query/table.js";
import { go, patch, route } from "../route.js";

/** @typedef {import("../query/panel.js").Panel} PanelFields */

const LANGUAGES = /** @type {[import("../query/panel.js").Language, string][]} */ ([["promql", "PromQL"], ["influxql", "InfluxQL"], ["graphite", "Graphite"]]);
const TABS = /** @type {[import("../query/panel.js").Tab, string][]} */ ([["graph", "Graph"], ["table", "Table"], ["json", "JSON"], ["raw", "Raw"], ["plan", "Plan"]]);
/** @type {import("../query/graph.js").Exemplar[]} */
const NO_MARKS = [];
/** The start page asks again until its graph has this many points, at most this often. */
const START_POINTS = 10, START_ASKS_MAX = 60, START_PAUSE_MS = 2000;

export function QueryPage() {
  const { params } = route.value, panels = panelCount(params);
  const add = () => patch(panelParams(panelCount(route.value.params), { expr: " ", tab: "graph" }));
  useEffect(() => register([{ key: "n", what: "add a panel", run: add }, { key: "/", what: "write in the first editor", run: focusEditor }]), []);
  return html`<h1 class="hidden">Query</h1>
    ${Array.from({ length: panels }, (_, idx) => html`<${PanelView} key=${idx} idx=${idx} isOnly=${panels === 1} />`)}
    ${panels < PANELS_MAX && html`<button class="quiet" onClick=${add}>Add panel</button>`}`;
}

/** The text area or, within its shadow root, CodeMirror. */
function focusEditor() {
  const editor = document.querySelector(".editor"), root = editor?.firstElementChild?.shadowRoot;
  /** @type {HTMLElement | null | undefined} */ (root?.querySelector(".cm-content") ?? editor?.querySelector("textarea"))?.focus();
}

/** @param {{ idx: number, isOnly: boolean }} props */
function PanelView({ idx, isOnly }) {
  const { params } = route.value;
  const panel = readPanel(params, idx), utc = params.get("tz") === "utc";
  const [runs, setRuns] = useState(0);
  const draft = useRef(panel.expr);
  const { result, error, isRunning, marks } = useResult(panel, params.get("tenant") ?? "", runs);
  useEffect(() => { draft.current = panel.expr; }, [panel.expr]);
  const isFilling = isStart(params, idx) && panel.tab === "graph" && runs < START_ASKS_MAX && !hasPoints(result, START_POINTS);
  useEffect(() => {
    if (!isFilling || isRunning) return;
    const timer = setTimeout(() => { if (!document.hidden) setRuns(now => now + 1); }, START_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [isFilling, isRunning]);

  // Samples of a fixed range do not change, but for late ones.
  useRefresh(panel.end ? 0 : refreshSeconds(params), isRunning, runs, () => setRuns(now => now + 1));

  const change = (/** @type {Partial<PanelFields>} */ fields) => patch(panelParams(idx, { expr: panel.expr, tab: panel.tab, ...fields }));
  const start = (/** @type {string} */ text) => {
    remember(panel.lang, text);
    if (text === panel.expr) setRuns(now => now + 1);
    else change({ expr: text });
  };
  const languageTab = (/** @type {(typeof LANGUAGES)[number]} */ [lang, title]) => html`<button key=${lang} aria-pressed=${panel.lang === lang} onClick=${() => change({ lang, ...(lang !== "promql" && panel.tab === "plan" && { tab: "table" }) })}>${title}</button>`;
  const tabs = TABS.filter(([tab]) => tab !== "plan" || panel.lang === "promql");
  return html`<section class="panel" aria-label=${`Panel ${idx + 1}`}>
    <div class="bar">
      <div class="switch" role="group" aria-label="Language">${LANGUAGES.map(languageTab)}</div>
      ${panel.lang === "influxql" && html`<${Database} db=${panel.db} tenant=${params.get("tenant") ?? ""} onChoose=${(/** @type {string} */ db) => change({ db })} onOnly=${(/** @type {string} */ db) => patch(panelParams(idx, { db }), "replace")} />`}
      <${History} lang=${panel.lang} onChoose=${start} />
      <span class="grow"></span>
      <span class="soft" role="status">${result && !isRunning ? summary(result, panel) : ""}</span>
      ${idx === 0 && html`<${Refresh} />`}
      ${!isOnly && html`<button class="quiet" onClick=${() => go("./?" + withoutPanel(route.value.params, idx))}>Remove</button>`}
    </div>
    <div class="ask">
      <${Editor} value=${panel.expr.trim()} lang=${panel.lang} label=${`Query ${idx + 1}`} error=${error} focus=${idx === 0 && !params.has("g0.expr")} onDraft=${(/** @type {string} */ text) => { draft.current = text; }} onRun=${start} />
      <button class="run" onClick=${() => start(draft.current)}>${isRunning ? "Running" : "Run"}</button>
      ${panel.lang === "promql" && html`<${Format} text=${() => draft.current} onText=${(/** @type {string} */ expr) => change({ expr })} />`}
    </div>
    <div class="bar controls">
      <div class="switch" role="group" aria-label="Result">${tabs.map(([tab, title]) => html`<button key=${tab} aria-pressed=${panel.tab === tab} onClick=${() => change({ tab })}>${title}</button>`)}</div>
      <${Controls} panel=${panel} utc=${utc} isHeatmap=${panel.tab === "graph" && hasOnlyHistograms(result)} onChange=${change} />
    </div>
    ${error && html`<div class="error" role="alert">${error.message}</div>`}
    ${result?.warnings.map((text, at) => html`<div class="note" key=${at}>${text}</div>`)}
    ${!error && result && html`<${View} panel=${panel} result=${result} marks=${marks} utc=${utc} onChange=${change} onRun=${start} />`}
  </section>`;
}

/** @param {import("../query/languages.js").Result | null} result */
const hasOnlyHistograms = result => Boolean(result?.series.length && result.series.every(line => line.histograms));

/** @param {import("../query/languages.js").Result | null} result @param {number} least */
const hasPoints = (result, least) => Boolean(result?.series.some(line => line.points.filter(value => value !== null).length >= least));

/** @param {import("../query/languages.js").Result} result @param {PanelFields} panel */
const summary = ({ rows, series, raw, ms }, panel) => `${panel.tab === "plan" || raw ? "" : rows ? `${count(rows.length)} rows · ` : `${count(series.length)} series · `}${duration(ms)}`;

/** Runs the query of a panel when what it asks changes; an older request is cancelled. @param {PanelFields} panel @param {string} tenant @param {number} runs */
function useResult(panel, tenant, runs) {
  const [state, setState] = useState(/** @type {{ result: import("../query/languages.js").Result | null, error: any, isRunning: boolean, asked: string, marks: import("../query/graph.js").Exemplar[] }} */ ({ result: null, error: null, isRunning: false, asked: "", marks: NO_MARKS }));
  const { lang, expr, db, tab, range, end, step, request } = panel;
  const wantsMarks = panel.exemplars && lang === "promql" && tab === "graph";
  const asked = JSON.stringify([lang, expr, db, tab, range, end, step, tenant, request]);
  useEffect(() => {
    if (!expr.trim()) { setState({ result: null, error: null, isRunning: false, asked, marks: NO_MARKS }); return; }
    const stop = new AbortController();
    setState(now => ({ ...now, isRunning: true }));
    Promise.all([run(panel, stop.signal), wantsMarks ? exemplars(panel, stop.signal) : NO_MARKS]).then(
      ([result, marks]) => setState({ result, error: null, isRunning: false, asked, marks }),
      error => { if (!stop.signal.aborted) setState({ result: null, error, isRunning: false, asked, marks: NO_MARKS }); },
    );
    return () => stop.abort();
  }, [asked, wantsMarks, runs]);
  // A result of another tab or language is not shown while its successor is fetched.
  const last = state.asked && JSON.parse(state.asked);
  return last && (last[0] !== lang || last[3] !== tab) ? { ...state, result: null, error: null } : state;
}

/** @param {{ panel: PanelFields, result: import("../query/languages.js").Result, marks: import("../query/graph.js").Exemplar[], utc: boolean, onChange: (fields: Partial<PanelFields>) => void, onRun: (expr: string) => void }} props */
function View({ panel, result, marks, utc, onChange, onRun }) {
  const tenant = route.value.params.get("tenant") ?? "";
  if (result.raw) return html`<${Answer} raw=${result.raw} panel=${panel} tenant=${tenant} onChange=${onChange} />`;
  if (panel.tab === "plan") return html`<${Plan} plan=${result.plan} />`;
  const hint = panel.lang === "promql" && html`<${Hint} panel=${panel} tenant=${tenant} utc=${utc} onChange=${onChange} onRun=${onRun} />`;
  if (result.rows) return result.rows.length ? html`<${Table} rows=${result.rows} lang=${panel.lang} />` : html`<p class="empty">Empty result</p>${hint}`;
  if (!result.series.length) return html`<p class="empty">No series in this range</p>${hint}`;
  if (panel.mode === "heatmap" || hasOnlyHistograms(result)) return html`<${Heatmap} times=${result.times} series=${result.series} utc=${utc} step=${windowOf(panel).step} />`;
  const zoom = (/** @type {number} */ from, /** @type {number} */ to) => onChange({ range: Math.max(1, Math.round(to - from)), end: Math.ceil(to), step: 0 });
  return html`<${Graph} times=${result.times} series=${result.series} panel=${panel} utc=${utc} marks=${marks} onZoom=${zoom} onChange=${onChange} />`;
}

/** @param {{ lang: string, onChoose: (text: string) => void }} props */
function History({ lang, onChoose }) {
  const [list, setList] = useState(/** @type {string[]} */ ([]));
  const load = () => setList(earlier(lang));
  useEffect(load, [lang]);
  return html`<select aria-label="Earlier queries" class="history" value="" onFocus=${load} onPointerDown=${load} onChange=${(/** @type {any} */ event) => { if (event.target.value) onChoose(event.target.value); }}>
    <option value="">History</option>${list.map(text => html`<option key=${text} value=${text}>${text.slice(0, 120)}</option>`)}</select>`;
}

/** @param {{ text: () => string, onText: (text: string) => void }} props */
function Format({ text, onText }) {
  const format = async () => {
    try { onText(await data("api/v1/format_query", { query: text() })); } catch { /* The server's parser has marked where. */ }
  };
  return html`<button class="quiet" onClick=${format}>Format</button>`;
}
