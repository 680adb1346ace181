// A text field whose value is taken when it is complete and valid: by Enter, or when it loses the focus.
import { html, useEffect, useState } from "../lib/ui.js";

/** @param {{ label: string, value: string, size: number, placeholder: string, parse: (text: string) => number, onValue: (value: number) => void }} props */
export function Field({ label, value, size, placeholder, parse, onValue }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const isBad = text.trim() !== "" && !(parse(text) > 0);
  const take = () => { if (!isBad && text !== value) onValue(text.trim() ? parse(text) : 0); };
  return html`<label>${label} <input value=${text} size=${size} placeholder=${placeholder} spellcheck=${false} aria-invalid=${isBad}
    onInput=${(/** @type {any} */ event) => setText(event.target.value)} onBlur=${take} onKeyDown=${(/** @type {any} */ event) => { if (event.key === "Enter") take(); }} /></label>`;
}
