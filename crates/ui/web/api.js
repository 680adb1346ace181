// Requests to this server, with the tenant of the address.
// Not here: what a query page asks in its languages (query/languages.js).
import { route } from "./route.js";

const ERROR_TEXT_MAX = 2000;

/** An error that the server answered. */
export class ApiError extends Error {
  /** @param {string} message @param {string} type */
  constructor(message, type) {
    super(message);
    this.type = type;
    /** Line and column (in bytes) of a parse error, from 1. @type {[number, number] | null} */
    this.at = null;
    const at = /(\d+):(\d+): parse error/.exec(message);
    if (at) this.at = [Number(at[1]), Number(at[2])];
  }
}

function tenantHeaders() {
  const tenant = route.value.params.get("tenant");
  /** @type {Record<string, string>} */
  const headers = tenant ? { "X-Scope-OrgID": tenant } : {};
  return headers;
}

/**
 * Sends parameters as a form; the answer's JSON, whatever its shape.
 * @param {string} path @param {URLSearchParams | Record<string, string>} form @param {AbortSignal} [signal] @returns {Promise<any>}
 */
export async function post(path, form, signal) {
  const body = form instanceof URLSearchParams ? form : new URLSearchParams(form);
  return read(await fetch(path, { method: "POST", body, headers: tenantHeaders(), signal: signal ?? null }));
}

/** @param {string} path @param {Record<string, string>} [params] @param {AbortSignal} [signal] @returns {Promise<any>} */
export async function get(path, params = {}, signal) {
  const query = new URLSearchParams(params).toString();
  return read(await fetch(path + (query ? "?" + query : ""), { headers: tenantHeaders(), signal: signal ?? null }));
}

/** Field `data` of a successful answer. @param {string} path @param {Record<string, string>} [params] @param {AbortSignal} [signal] */
export const data = async (path, params, signal) => (await get(path, params, signal)).data;

/** @param {Response} answer */
async function read(answer) {
  const text = await answer.text();
  let json;
  try {
    json = JSON.parse(text);
  } catch {
    throw new ApiError(text.slice(0, ERROR_TEXT_MAX) || `${answer.status} ${answer.statusText}`, String(answer.status));
  }
  const error = json?.error ?? json?.results?.find((/** @type {any} */ result) => result.error)?.error;
  if (error) throw new ApiError(error, json.errorType ?? String(answer.status));
  return json;
}
