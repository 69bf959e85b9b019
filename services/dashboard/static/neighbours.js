// The questions before and after one, in the list that an address names: its filters, its order, its page.
import { useEffect, useState } from "/static/preact.js";
import { ApiError, get } from "./api.js";

export const PAGE = 50; // questions a page of the list
const MOST_PAGES = 200; // that are looked through for a question

/** `{before, after, missing}` of question `index` in the list at `path`; null until it is known.
 *
 * Each is `{index, page}`, where `page` is the `after` of the list's page that has it, or null where there is none.
 * `missing` says that the list has not got the question itself.
 */
export function useNeighbours(path, wanted, index) {
  const key = JSON.stringify([path, wanted, index]);
  const [state, setState] = useState({ key: null, found: null });
  useEffect(() => {
    const stop = new AbortController();
    const { after, ...filters } = wanted;
    const looked = Object.keys(filters).length ? inList(path, filters, after ?? null, index, stop.signal) : inOrder(path, index, stop.signal);
    looked.then(
      (found) => setState({ key, found: found ?? { before: null, after: null, missing: true } }),
      (error) => {
        // Without an answer there are no steps; the page's own question says why.
        if (!(error instanceof ApiError) && error.name !== "AbortError") throw error;
      },
    );
    return () => stop.abort();
  }, [key]);
  return state.key === key ? state.found : null;
}

/** Without a filter they are numbered from 0. */
async function inOrder(path, index, signal) {
  const { items } = await get(path, { sort: "-index", limit: 1 }, signal);
  const last = items.length ? items[0].index : -1;
  const at = (number) => (number >= 0 && number <= last ? { index: number, page: null } : null);
  return { before: at(Math.min(index - 1, last)), after: at(index + 1) };
}

/** From a page of the list on; one that has it first does not say what is before it, so then from the beginning. */
async function inList(path, filters, from, index, signal) {
  let before = null;
  let page = from;
  for (let count = 0; count < MOST_PAGES; count += 1) {
    const { items, next } = await get(path, { ...filters, after: page, limit: PAGE }, signal);
    const rows = items.map((item) => ({ index: item.index, page }));
    const at = rows.findIndex((row) => row.index === index);
    before = rows[at - 1] ?? before;
    if (at >= 0 && (before || from === null)) return { before, after: rows[at + 1] ?? (await first(path, filters, next, signal)) };
    if (at >= 0 || !next) break;
    before = rows.at(-1) ?? before;
    page = next;
  }
  return from === null ? null : inList(path, filters, null, index, signal);
}

async function first(path, filters, page, signal) {
  if (!page) return null;
  const { items } = await get(path, { ...filters, after: page, limit: 1 }, signal);
  return items.length ? { index: items[0].index, page } : null;
}
