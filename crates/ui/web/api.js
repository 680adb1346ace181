// Requests to this server, with the tenant of the address and the login of the tab.
// Not here: what a query page asks in its languages (query/languages.js).
import { parseInTasks } from "./json.js";
import { loginHeaders, noteStatus } from "./login.js";
import { route } from "./route.js";

const ERROR_TEXT_MAX = 2000;
/** Type of the error of an address that the server does not have. */
const MISSING = "missing";

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

/** Sends a request; a server that is gone has a text that says so. @param {string} path @param {RequestInit} request @returns {Promise<Response>} */
async function send(path, request) {
  try {
    const answer = await fetch(path, { ...request, headers: { ...request.headers, ...loginHeaders() } });
    noteStatus(answer.status);
    return answer;
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new ApiError("no answer from the server", "unreachable");
  }
}

/** @param {string | null} [tenant] Instead of the tenant of the address. */
function tenantHeaders(tenant = route.value.params.get("tenant")) {
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
  return read(await send(path, { method: "POST", body, headers: tenantHeaders(), signal: signal ?? null }), signal);
}

/** The answer of a form as it is, errors included. @param {string} path @param {URLSearchParams} form @param {AbortSignal} signal */
export async function text(path, form, signal) {
  const answer = await send(path, { method: "POST", body: form, headers: tenantHeaders(), signal });
  return { status: `${answer.status} ${answer.statusText}`.trim(), type: answer.headers.get("Content-Type") ?? "", text: await answer.text() };
}

/** @param {string} path @param {Record<string, string>} [params] @param {AbortSignal} [signal] @param {string} [tenant] @returns {Promise<any>} */
export async function get(path, params = {}, signal, tenant) {
  const query = new URLSearchParams(params).toString();
  return read(await send(path + (query ? "?" + query : ""), { headers: tenantHeaders(tenant), signal: signal ?? null }), signal);
}

/** Field `data` of a successful answer. @param {string} path @param {Record<string, string>} [params] @param {AbortSignal} [signal] @param {string} [tenant] */
export const data = async (path, params, signal, tenant) => (await get(path, params, signal, tenant)).data;

/**
 * Lines of a streamed answer (NDJSON), which ends with a status. @param {string} path @param {URLSearchParams | Record<string, string>} form @param {AbortSignal} [signal]
 * @returns {Promise<{ results: any[], hasMore: boolean }>}
 */
export async function stream(path, form, signal) {
  const body = form instanceof URLSearchParams ? form : new URLSearchParams(form);
  const answer = await send(path, { method: "POST", body, headers: tenantHeaders(), signal: signal ?? null });
  if (!answer.ok) await read(answer);
  /** @type {any[]} */
  const results = [];
  let hasMore = false;
  for (const line of (await answer.text()).split("\n")) {
    if (!line) continue;
    const part = JSON.parse(line);
    if (part.error) throw new ApiError(part.error, part.errorType ?? "error");
    results.push(...(part.results ?? []));
    hasMore = part.has_more ?? hasMore;
  }
  return { results, hasMore };
}

/** Returns true if a server of another release does not have the address that was asked. @param {any} error */
export const isMissing = error => error instanceof ApiError && error.type === MISSING;

/** @param {Response} answer @param {AbortSignal} [signal] */
async function read(answer, signal) {
  const text = await answer.text();
  if (answer.status === 404 && !text.startsWith("{")) {
    throw new ApiError(`This server does not have ${new URL(answer.url).pathname}: it is of another release than this page.`, MISSING);
  }
  let json;
  try {
    json = await parseInTasks(text, signal);
  } catch {
    signal?.throwIfAborted();
    throw new ApiError(text.slice(0, ERROR_TEXT_MAX) || `${answer.status} ${answer.statusText}`, String(answer.status));
  }
  const error = json?.error ?? json?.results?.find((/** @type {any} */ result) => result.error)?.error;
  if (error) throw new ApiError(error, json.errorType ?? String(answer.status));
  return json;
}
