// Asking the REST API, once or again and again while the page is looked at.
import { useEffect, useState } from "/static/preact.js";
import { ofTab } from "./stored.js";

const PREFIX = "/api/v1";
const KEY = "coevo-key"; // for this tab only

export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

export const hasKey = () => ofTab.get(KEY) !== null;
export const forgetKey = () => ofTab.remove(KEY);
export const useKey = (key) => ofTab.set(KEY, key);

export function authorization() {
  const key = ofTab.get(KEY);
  return key === null ? {} : { Authorization: `Bearer ${key}` };
}

/** `path` below /api/v1 with `query`, where a list is given once for each of its values and null not at all. */
export function address(path, query = {}) {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === null || value === undefined || value === "" ? [] : [value].flat().map((one) => [name, one]),
  );
  const search = new URLSearchParams(given).toString();
  return PREFIX + path + (search && `?${search}`);
}

async function answered(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The API does not answer.");
  }
  const text = await response.text();
  if (response.ok) return text;
  let detail = text.slice(0, 300);
  try {
    detail = JSON.parse(text).detail ?? detail;
  } catch {
    /* not the API's own words */
  }
  throw new ApiError(response.status, detail);
}

// A seed has 63 bits, and JavaScript's numbers 53: it is read as text. (Within a text its quotes would be escaped.)
const read = (text) => JSON.parse(text.replace(/"seed":(\d{16,})/g, '"seed":"$1"'));

export async function get(path, query, signal) {
  return read(await answered(address(path, query), { headers: authorization(), signal }));
}

/** With `keepalive` it arrives even where the page is left at once; the body is then small. */
export async function post(path, body, { keepalive = false } = {}) {
  const headers = { "Content-Type": "application/json", ...authorization() };
  return JSON.parse(await answered(PREFIX + path, { method: "POST", headers, body: JSON.stringify(body), keepalive }));
}

/** What routes answer: `{data, error, again}`; `data` is null before the first answer, and stays while a later one fails.
 *
 * `asked` is a list of [path, query]; null asks nothing. Every `every` ms it is asked again, while the page is visible.
 */
export function useAnswers(asked, every = 0) {
  const key = asked === null ? null : JSON.stringify(asked);
  const [state, setState] = useState({ key: null, text: "", data: null, error: null });
  const [count, setCount] = useState(0);
  useEffect(() => {
    if (key === null) return undefined;
    const stop = new AbortController();
    let timer = null;
    let askedOnce = false;
    async function ask() {
      if (askedOnce && document.hidden) return void (timer = setTimeout(ask, every));
      askedOnce = true;
      try {
        const data = await Promise.all(JSON.parse(key).map(([path, query]) => get(path, query, stop.signal)));
        const text = JSON.stringify(data);
        // The same answer draws nothing anew: a picture that is being read stays as it is.
        setState((old) => (old.key === key && old.text === text && !old.error ? old : { key, text, data, error: null }));
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((old) => ({ ...(old.key === key ? old : { key, text: "", data: null }), error }));
      }
      if (every) timer = setTimeout(ask, every);
    }
    ask();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, every, count]);
  const current = state.key === key ? state : { data: null, error: null };
  return { data: current.data, error: current.error, again: () => setCount((n) => n + 1) };
}

/** The same of one route. */
export function useAnswer(path, query = {}, every = 0) {
  const { data, error, again } = useAnswers(path === null ? null : [[path, query]], every);
  return { data: data && data[0], error, again };
}

/** Fetch a file that needs a key, and hand it to the browser as a download. */
export async function download(path, query, name) {
  const response = await fetch(address(path, query), { headers: authorization() });
  if (!response.ok) throw new ApiError(response.status, (await response.json()).detail);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
