// Requests to the REST API: single ones, and ones that are repeated while the page is visible.
import { useEffect, useState } from "/static/preact.js";
import { tabStorage } from "./stored.js";

/**
 * What a report, which is a run's page in a file of its own, has in place of a server: the API's answers by URL. Those
 * about questions are of the iterations `asked`, and those about steps of training of the iterations `begun`. Null on a
 * page that comes from a server.
 *
 * @type {{
 *   run: string,
 *   written: string,
 *   asked: number[],
 *   begun: number[],
 *   answers: Record<string, [status: number, body: any]>,
 * } | null}
 */
export const report = JSON.parse(document.getElementById("report")?.textContent ?? "null");

/** A text about what a click does, which it does not do in a report. @param {string} text */
export const unlessReport = (text) => (report ? "" : text);

const PREFIX = "/api/v1";
const STORAGE_KEY = "coevo-key"; // of the API key, in the storage of this tab

/** An error that the API answered with, or its absence (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} detail */
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** What was thrown, as an error that has a message. @param {unknown} thrown */
export const toError = (thrown) => (thrown instanceof Error ? thrown : new Error(String(thrown)));

/** @param {unknown} error */
export const isAbort = (error) => error instanceof DOMException && error.name === "AbortError";

export const hasApiKey = () => tabStorage.get(STORAGE_KEY) !== null;
/** @param {string} apiKey */
export const storeApiKey = (apiKey) => tabStorage.set(STORAGE_KEY, apiKey);

// The open tabs of this dashboard hand the key on to a new one, so that a link can be opened in another tab. No page of
// another origin hears this. A message is "ask", "forget" or {apiKey}.
const otherTabs = new BroadcastChannel("coevo-key");
otherTabs.addEventListener("message", ({ data }) => {
  const apiKey = tabStorage.get(STORAGE_KEY);
  if (data === "ask" && apiKey !== null) otherTabs.postMessage({ apiKey });
  if (data === "forget" && apiKey !== null) forgetHere();
});

function forgetHere() {
  tabStorage.remove(STORAGE_KEY);
  location.reload();
}

/** Forgets the key in all tabs. */
export function forgetApiKey() {
  otherTabs.postMessage("forget");
  forgetHere();
}

/** Asks the other tabs for their key. @param {() => void} onAnswer @returns {() => void} stops waiting for an answer */
export function askOtherTabs(onAnswer) {
  /** @param {MessageEvent} message */
  function listener({ data: { apiKey } }) {
    if (!apiKey || hasApiKey()) return;
    storeApiKey(apiKey);
    onAnswer();
  }
  otherTabs.addEventListener("message", listener);
  otherTabs.postMessage("ask");
  return () => otherTabs.removeEventListener("message", listener);
}

/** @returns {Record<string, string>} */
function authorization() {
  const apiKey = tabStorage.get(STORAGE_KEY);
  return apiKey === null ? {} : { Authorization: `Bearer ${apiKey}` };
}

/**
 * The URL of a request to a path such as "/runs/{run}/series".
 *
 * @param {string} path below /api/v1
 * @param {object} [parameters] those that the path names are inserted into it, the others form the query. A list is
 *   repeated for each of its values; null, undefined and "" are left out.
 */
function urlOf(path, parameters = {}) {
  const values = new Map(Object.entries(parameters));
  const filledPath = path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values.get(name);
    values.delete(name);
    return encodeURIComponent(value);
  });
  const query = new URLSearchParams();
  for (const [name, value] of values) {
    if (value === null || value === undefined || value === "") continue;
    for (const item of [value].flat()) query.append(name, item);
  }
  return `${PREFIX}${filledPath}${String(query) && `?${query}`}`;
}

/**
 * A response that is not an error.
 *
 * @param {string} url
 * @param {RequestInit} options
 * @throws {ApiError} with the API's own message if it sent one
 */
async function send(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(0, "The API cannot be reached.");
  }
  if (response.ok) return response;
  const text = await response.text();
  let detail = text.slice(0, 300);
  try {
    detail = JSON.parse(text).detail ?? detail;
  } catch {
    // The answer is not JSON, so it does not come from the API but, for example, from a proxy.
  }
  throw new ApiError(response.status, detail);
}

/**
 * @template {GetPath} Path
 * @param {Path} path
 * @param {GetParameters<Path>} parameters
 * @param {AbortSignal} [signal]
 * @returns {Promise<GetResponse<Path>>}
 */
export async function get(path, parameters, signal) {
  const url = urlOf(path, parameters);
  if (report) {
    const [status, body] = report.answers[url] ?? [404, { detail: `The report does not have ${url}.` }];
    if (status >= 400) throw new ApiError(status, body.detail);
    return body;
  }
  const response = await send(url, { headers: authorization(), signal });
  return response.json();
}

/**
 * @template {PostPath} Path
 * @param {Path} path
 * @param {PathParameters<Path, "post">} parameters
 * @param {PostBody<Path>} body
 * @param {{ keepalive?: boolean }} [options] with `keepalive` the request is completed even if the page is left; its
 *   body must then be small
 * @returns {Promise<PostResponse<Path>>}
 */
export async function post(path, parameters, body, { keepalive = false } = {}) {
  const headers = { "Content-Type": "application/json", ...authorization() };
  const options = { method: "POST", headers, body: JSON.stringify(body), keepalive };
  const response = await send(urlOf(path, parameters), options);
  return response.json();
}

/**
 * The responses to several requests.
 *
 * `data` is null until all have arrived, and keeps its value if a later request fails, which sets `error`.
 *
 * @template {readonly GetRequest[]} const Requests
 * @param {Requests | null} requests null: no requests are made
 * @param {number} [interval] how often the requests are repeated while the page is visible, in ms; 0: never
 * @returns {{
 *   data: { -readonly [Index in keyof Requests]: GetResponse<Requests[Index][0]> } | null,
 *   error: Error | null,
 *   refetch: () => void,
 * }}
 */
export function useResponses(requests, interval = 0) {
  const key = requests === null ? null : JSON.stringify(requests);
  const [state, setState] = useState(
    /** @returns {{ key: string | null, text: string, data: any, error: Error | null }} */
    () => ({ key: null, text: "", data: null, error: null }),
  );
  const [refetchCount, setRefetchCount] = useState(0);
  useEffect(() => {
    if (key === null) return undefined;
    const abortController = new AbortController();
    /** @type {number | undefined} */
    let timer;
    let isFirst = true;
    async function fetchAll() {
      if (!isFirst && document.hidden) {
        timer = setTimeout(fetchAll, interval);
        return;
      }
      isFirst = false;
      try {
        /** @type {GetRequest[]} */
        const parsed = JSON.parse(/** @type {string} */ (key));
        const data = await Promise.all(
          parsed.map(([path, parameters]) => get(path, parameters ?? {}, abortController.signal)),
        );
        const text = JSON.stringify(data);
        // If the data is the same as before, the state stays the same object, so that nothing is drawn again while a
        // person reads a chart.
        setState((old) =>
          old.key === key && old.text === text && !old.error ? old : { key, text, data, error: null },
        );
      } catch (error) {
        if (isAbort(error)) return;
        setState((old) => ({ ...(old.key === key ? old : { key, text: "", data: null }), error: toError(error) }));
      }
      if (interval && !report) timer = setTimeout(fetchAll, interval);
    }
    fetchAll();
    return () => {
      abortController.abort();
      clearTimeout(timer);
    };
  }, [key, interval, refetchCount]);
  const { data, error } = state.key === key ? state : { data: null, error: null };
  return { data, error, refetch: () => setRefetchCount((count) => count + 1) };
}

/**
 * The response to one request; see `useResponses`.
 *
 * @template {GetPath} Path
 * @param {Path | null} path
 * @param {GetParameters<Path>} parameters
 * @param {number} [interval]
 * @returns {{ data: GetResponse<Path> | null, error: Error | null, refetch: () => void }}
 */
export function useResponse(path, parameters, interval = 0) {
  const request = /** @type {GetRequest} */ ([path, parameters]);
  const { data, error, refetch } = useResponses(path === null ? null : [request], interval);
  const response = data === null ? null : data[0];
  return { data: /** @type {GetResponse<Path> | null} */ (response), error, refetch };
}

/**
 * Fetches a file with the API key, which a plain link could not send, and has the browser save it under the API's name
 * for it, which differs between selections of rows.
 *
 * @param {string} path
 * @param {object} parameters
 */
export async function download(path, parameters) {
  const response = await send(urlOf(path, parameters), { headers: authorization() });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "");
  link.download = name?.[1] ?? "";
  link.click();
  URL.revokeObjectURL(link.href);
}
