// Login of the page: a token, or user and password, kept for this tab alone.
// Not here: who may do what (the server decides).
import { html, signal, useEffect, useRef, useState } from "./lib/ui.js";

const KEY = "login";
/** A login that is refused: "needed" without one, "wrong" with one. */
export const refused = signal(/** @type {"" | "needed" | "wrong"} */ (""));

const remembered = () => { try { return sessionStorage.getItem(KEY) ?? ""; } catch { return ""; } };
/** @param {string} login */
function remember(login) {
  try { login ? sessionStorage.setItem(KEY, login) : sessionStorage.removeItem(KEY); } catch { /* Storage may be off; the next page asks again. */ }
}

/** Value of the header, "" without a login. */
let authorization = headerOf(remembered());

/** @param {string} login */
function headerOf(login) {
  if (!login) return "";
  if (!login.includes(":")) return `Bearer ${login}`;
  return "Basic " + btoa(String.fromCharCode(...new TextEncoder().encode(login)));
}

/** Headers of each request. The second one keeps the browser from asking for a password by itself. @returns {Record<string, string>} */
export const loginHeaders = () => ({ ...(authorization && { Authorization: authorization }), "X-Requested-With": "XMLHttpRequest" });

/** @param {number} status Of any answer. */
export function noteStatus(status) {
  if (status === 401) refused.value = authorization ? "wrong" : "needed";
}

/** Asks for a login when the server has refused a request for the lack of one. */
export function Login() {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [text, setText] = useState("");
  const why = refused.value;
  useEffect(() => { why ? dialog.current?.showModal() : dialog.current?.close(); }, [why]);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    remember(text.trim());
    // Each part of the page asks again.
    location.reload();
  };
  return html`<dialog ref=${dialog} aria-labelledby="login-title" onClose=${() => { refused.value = ""; }}>
    ${why && html`<form class="login" onSubmit=${submit}>
      <h2 id="login-title">Log in</h2>
      ${why === "wrong" && html`<p class="error" role="alert">The server refuses this login.</p>`}
      <label>Token, or user:password <input type="password" name="login" autocomplete="current-password" required value=${text} onInput=${(/** @type {any} */ event) => setText(event.target.value)} /></label>
      <p class="soft">It is kept until this tab is closed.</p>
      <button type="submit">Log in</button>
    </form>`}
  </dialog>`;
}
