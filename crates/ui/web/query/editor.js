// The query editor: CodeMirror in a shadow root, whose style sheets the policy allows (ADR 0104).
// A plain text area until its bundle has been loaded.
// Not here: where completions come from (completion.js).
import { html, useEffect, useRef, useState } from "../lib/ui.js";
import { post } from "../api.js";
import { complete } from "./completion.js";
import { colouredTags, language, loadBundle } from "./grammar.js";
import { earlier } from "./history.js";

/** @typedef {typeof import("../lib/editor.js")} CodeMirror */

const CHECK_MS = 350;

/**
 * @param {{ value: string, lang: string, label: string, error: import("../api.js").ApiError | null, focus: boolean,
 *   onDraft: (text: string) => void, onRun: (text: string) => void }} props
 */
export function Editor({ value, lang, label, error, focus, onDraft, onRun }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const view = useRef(/** @type {import("../lib/editor.js").EditorView | null} */ (null));
  const kit = useRef(/** @type {CodeMirror | null} */ (null));
  const [isLoaded, setLoaded] = useState(false);
  const actions = useRef({ onDraft, onRun });
  actions.current = { onDraft, onRun };

  useEffect(() => {
    let ended = false;
    loadBundle().then(cm => {
      if (ended || !host.current) return;
      kit.current = cm;
      view.current = mount(cm, host.current, { value, lang, label, onDraft: text => actions.current.onDraft(text), onRun: text => actions.current.onRun(text) });
      setLoaded(true);
      if (focus) view.current.focus();
    }).catch(() => { /* The text area stays. */ });
    return () => { ended = true; view.current?.destroy(); view.current = null; };
  }, [lang]);

  useEffect(() => {
    const open = view.current;
    if (open && open.state.doc.toString() !== value) open.dispatch({ changes: { from: 0, to: open.state.doc.length, insert: value } });
  }, [value]);

  useEffect(() => { if (view.current && kit.current) mark(kit.current, view.current, error); }, [error, isLoaded]);

  return html`<div class="editor">
    <div ref=${host} key=${lang}></div>
    ${!isLoaded && html`<textarea aria-label=${label} rows="1" spellcheck=${false} value=${value} onInput=${(/** @type {any} */ event) => onDraft(event.target.value)}
      onKeyDown=${(/** @type {any} */ event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); onRun(event.target.value); } }}></textarea>`}
  </div>`;
}

/**
 * @param {CodeMirror} cm @param {HTMLElement} host
 * @param {{ value: string, lang: string, label: string, onDraft: (text: string) => void, onRun: (text: string) => void }} options
 */
function mount(cm, host, options) {
  const { EditorView, keymap } = cm;
  const root = host.shadowRoot ?? host.attachShadow({ mode: "open" });
  root.replaceChildren();
  const parent = document.createElement("div");
  root.append(parent);
  const run = (/** @type {import("../lib/editor.js").EditorView} */ view) => { options.onRun(view.state.doc.toString()); return true; };
  const extensions = [
    cm.history(), cm.bracketMatching(), cm.closeBrackets(), EditorView.lineWrapping, theme(cm),
    EditorView.contentAttributes.of({ "aria-label": options.label, spellcheck: "false", autocapitalize: "off" }),
    cm.Prec.highest(keymap.of([
      { key: "Enter", run: view => (cm.completionStatus(view.state) === "active" ? cm.acceptCompletion(view) : false) || run(view) },
      { key: "Shift-Enter", run: cm.insertNewlineAndIndent },
      { key: "Escape", run: view => cm.closeCompletion(view) || (view.contentDOM.blur(), true) },
      { key: "Tab", run: cm.acceptCompletion },
      ...recall(options.lang),
    ])),
    keymap.of([...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.historyKeymap, ...cm.completionKeymap]),
    EditorView.domEventHandlers({ beforeinput: (event, view) => replaceSelected(cm, event, view) }),
    EditorView.updateListener.of(update => { if (update.docChanged) options.onDraft(update.state.doc.toString()); }),
  ];
  if (options.lang === "promql") extensions.push(...promql(cm));
  return new EditorView({ root, parent, state: cm.EditorState.create({ doc: options.value, extensions }) });
}

/**
 * Replaces selected text by what is typed. Left to the browser, Chromium keeps the colour of the replaced text in an
 * inline style, which the policy refuses. Input methods compose text in the document itself and stay the browser's.
 * @param {CodeMirror} cm @param {InputEvent} event @param {import("../lib/editor.js").EditorView} view
 */
function replaceSelected(cm, event, view) {
  const { from, to, empty } = view.state.selection.main, text = event.data;
  if (empty || event.isComposing || event.inputType !== "insertText" || !text) return false;
  const insert = () => view.state.update(view.state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
  if (!view.state.facet(cm.EditorView.inputHandler).some(handle => handle(view, from, to, text, insert))) view.dispatch(insert());
  return true;
}

/** Grammar with functions and keywords, names from the server, and the server's parser. @param {CodeMirror} cm */
function promql(cm) {
  const completion = new Completion(cm.newCompleteStrategy()), grammar = language(cm);
  let timer = 0, stop = new AbortController();
  const check = cm.EditorView.updateListener.of(update => {
    if (!update.docChanged) return;
    clearTimeout(timer);
    stop.abort();
    timer = window.setTimeout(async () => {
      stop = new AbortController();
      const query = update.view.state.doc.toString();
      /** @type {any} */
      let error = null;
      if (query.trim()) try { await post("api/v1/parse_query", { query }, stop.signal); } catch (found) { error = found; }
      if (!stop.signal.aborted) mark(cm, update.view, error);
    }, CHECK_MS);
  });
  return [grammar, grammar.data.of({ autocomplete: (/** @type {any} */ context) => completion.promQL(context) }), cm.autocompletion({ activateOnTypingDelay: 20, interactionDelay: 0, icons: false }), cm.syntaxHighlighting(colours(cm)), check];
}

/** Names from the server, after functions and keywords of the grammar; its own client, which loads all names, stays out. */
class Completion {
  /** @param {any} grammar */
  constructor(grammar) {
    this.grammar = grammar;
  }

  /** @param {any} context */
  async promQL(context) {
    const [names, words] = await Promise.all([complete(context), this.grammar.promQL(context)]);
    if (!names || !words) return names ?? words;
    const typed = context.state.sliceDoc(names.from, context.pos).toLowerCase();
    const fitting = words.from === names.from ? words.options.filter((/** @type {any} */ option) => option.label.toLowerCase().startsWith(typed)) : [];
    return { ...names, options: [...fitting, ...names.options] };
  }
}

/** Keys that bring earlier queries back. @param {string} lang @returns {any[]} */
function recall(lang) {
  let at = -1, draft = "";
  const move = (/** @type {number} */ by) => (/** @type {any} */ view) => {
    const queries = earlier(lang), text = view.state.doc.toString();
    if (text !== queries[at]) { draft = text; at = -1; }
    at = Math.max(-1, Math.min(queries.length - 1, at + by));
    const insert = queries[at] ?? draft;
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert }, selection: { anchor: insert.length } });
    return true;
  };
  return [{ key: "Alt-ArrowUp", run: move(1) }, { key: "Alt-ArrowDown", run: move(-1) }];
}

/** Shows an error at its line and column; columns count bytes. @param {CodeMirror} cm @param {import("../lib/editor.js").EditorView} view @param {any} error */
function mark(cm, view, error) {
  /** @type {any[]} */
  const found = [];
  if (error?.at) {
    const line = view.state.doc.line(Math.min(Math.max(1, error.at[0]), view.state.doc.lines));
    const skipped = new TextDecoder().decode(new TextEncoder().encode(line.text).slice(0, error.at[1] - 1)).length;
    const from = Math.min(line.from + skipped, line.to);
    found.push({ from, to: Math.min(from + 1, view.state.doc.length), severity: "error", message: error.message.replace(/^.*?parse error: /, "") });
  }
  view.dispatch(cm.setDiagnostics(view.state, found));
}

/** @param {CodeMirror} cm */
const colours = cm => cm.HighlightStyle.define(colouredTags(cm).map(([tag, name]) => ({ tag, color: `var(--code-${name})` })));

/** @param {CodeMirror} cm */
const theme = cm => cm.EditorView.theme({
  "&": { font: "14px/1.5 var(--mono)", background: "var(--field)", border: "1px solid var(--edge)", borderRadius: "6px", color: "var(--ink)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-1px" },
  ".cm-scroller": { fontFamily: "var(--mono)", maxHeight: "40vh", overflow: "auto" },
  ".cm-content": { padding: "6px 4px", caretColor: "var(--ink)" },
  ".cm-tooltip": { background: "var(--card)", border: "1px solid var(--edge)", color: "var(--ink)", borderRadius: "6px", maxWidth: "90vw" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { background: "var(--accent)", color: "var(--on-accent)" },
  ".cm-tooltip-autocomplete > ul > li": { display: "flex", alignItems: "baseline", gap: "14px" },
  ".cm-tooltip-autocomplete .cm-completionDetail": { marginLeft: "auto", font: "italic 12px system-ui", opacity: "0.85", overflow: "hidden", textOverflow: "ellipsis" },
  ".cm-completionInfo": { padding: "6px 10px", maxWidth: "360px", fontFamily: "system-ui" },
  ".cm-matchingBracket": { background: "var(--match) !important" },
  ".cm-selectionBackground": { background: "var(--match) !important" },
  ".cm-diagnostic": { padding: "4px 8px", fontFamily: "system-ui" },
});
