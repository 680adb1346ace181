// Bundle of the query editor: CodeMirror and PromQL's grammar. The build replaces this file.
export { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, closeCompletion, completionKeymap, completionStatus, startCompletion } from "@codemirror/autocomplete";
export { defaultKeymap, history, historyKeymap, insertNewlineAndIndent } from "@codemirror/commands";
export { bracketMatching, HighlightStyle, indentUnit, syntaxHighlighting, syntaxTree } from "@codemirror/language";
export { lintKeymap, setDiagnostics } from "@codemirror/lint";
export { Compartment, EditorState, Prec } from "@codemirror/state";
export { EditorView, keymap, placeholder } from "@codemirror/view";
export { tags } from "@lezer/highlight";
export { PromQLExtension } from "@prometheus-io/codemirror-promql";
export { newCompleteStrategy } from "@prometheus-io/codemirror-promql/dist/esm/complete";
