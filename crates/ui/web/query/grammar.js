// PromQL's grammar out of the editor's bundle: loading it, and its colours.
// Not here: the editor (editor.js).

/** @typedef {typeof import("../lib/editor.js")} CodeMirror */

/** @type {Promise<CodeMirror> | null} */
let bundle = null;
export const loadBundle = () => (bundle ??= import("../lib/editor.js"));

/** Tags of the grammar by the name of their colour. @param {CodeMirror} cm @returns {[any[], string][]} */
export function colouredTags({ tags }) {
  return [
    [[tags.keyword, tags.operatorKeyword, tags.modifier], "keyword"], [[tags.string], "string"], [[tags.number, tags.definition(tags.number), tags.name], "number"],
    [[tags.function(tags.variableName)], "function"], [[tags.labelName], "label"], [[tags.comment], "comment"],
  ];
}

/** @type {import("@codemirror/language").LRLanguage | null} */
let grammar = null;
/** PromQL as a language of CodeMirror. @param {CodeMirror} cm */
export const language = cm => (grammar ??= cm.promQLLanguage(cm.LanguageType.PromQL));
