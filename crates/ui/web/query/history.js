// Earlier queries of this browser, newest first, per language.
const KEY = "queries.";
const QUERIES_MAX = 100;
const BYTES_MAX = 4096;

/** @param {string} lang @returns {string[]} */
export function earlier(lang) {
  try {
    const found = JSON.parse(localStorage.getItem(KEY + lang) ?? "[]");
    return Array.isArray(found) ? found.filter(text => typeof text === "string") : [];
  } catch {
    return [];
  }
}

/** @param {string} lang @param {string} query */
export function remember(lang, query) {
  if (!query.trim() || query.length > BYTES_MAX) return;
  const next = [query, ...earlier(lang).filter(text => text !== query)].slice(0, QUERIES_MAX);
  try { localStorage.setItem(KEY + lang, JSON.stringify(next)); } catch { /* Storage may be off or full. */ }
}
