// Bundle of the query editor: CodeMirror and PromQL's grammar. The build replaces this file.
export { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap, completionStatus } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from "@codemirror/commands";
export { bracketMatching, HighlightStyle, syntaxHighlighting } from "@codemirror/language";
export { setDiagnostics } from "@codemirror/lint";
export { EditorState, Prec } from "@codemirror/state";
export { EditorView, keymap } from "@codemirror/view";
export { highlightTree, tagHighlighter, tags } from "@lezer/highlight";
export { LanguageType, promQLLanguage } from "@prometheus-io/codemirror-promql";
export { newCompleteStrategy } from "@prometheus-io/codemirror-promql/dist/esm/complete";
