// Finds the previous and the next question in the list that an address describes: its filters, its order and its page.
import { useEffect, useState } from "/static/preact.js";
import { ApiError, get, isAbort } from "./api.js";

export const PAGE_SIZE = 50; // questions on a page of the list
const MAX_PAGES = 200; // that are searched for a question
const QUESTIONS = "/runs/{run}/iterations/{iteration}/questions";

/**
 * `cursor` is the parameter `after` of the list's page that contains the question; null for the first page.
 *
 * @typedef {{ index: number, cursor: string | null }} ListedQuestion
 */
/** @typedef {{ previous: ListedQuestion | null, next: ListedQuestion | null }} Neighbours */
/** @typedef {import("./pages/questions.js").QuestionFilters} QuestionFilters */
/** @typedef {{ run: string, iteration: string }} RunIteration */

/**
 * The neighbours of question `index` in the filtered list, where null marks the end of the list. "missing" means that
 * the list does not contain the question, and null that the answer is not known yet.
 *
 * @param {RunIteration} runIteration
 * @param {QuestionFilters} listFilters
 * @param {number} index
 * @returns {Neighbours | "missing" | null}
 */
export function useNeighbours(runIteration, listFilters, index) {
  const key = JSON.stringify([runIteration, listFilters, index]);
  const [state, setState] = useState(
    /** @returns {{ key: string | null, neighbours: Neighbours | "missing" | null }} */
    () => ({ key: null, neighbours: null }),
  );
  useEffect(() => {
    const abortController = new AbortController();
    const { after = null, ...filters } = listFilters;
    const search = { runIteration, filters, index, signal: abortController.signal };
    const result = Object.keys(filters).length ? findInList(search, after) : findByIndex(search);
    result.then(
      (neighbours) => setState({ key, neighbours: neighbours ?? "missing" }),
      (error) => {
        // Without a response there are no links to the neighbours. The page shows the error of the question itself.
        if (!(error instanceof ApiError) && !isAbort(error)) throw error;
      },
    );
    return () => abortController.abort();
  }, [key]);
  return state.key === key ? state.neighbours : null;
}

/**
 * @typedef {{ runIteration: RunIteration, filters: Omit<QuestionFilters, "after">, index: number, signal: AbortSignal }} Search
 */

/**
 * Neighbours in the list without filters, where the questions are numbered from 0.
 *
 * @param {Search} search
 * @returns {Promise<Neighbours>}
 */
async function findByIndex({ runIteration, index, signal }) {
  const { items } = await get(QUESTIONS, { ...runIteration, sort: "-index", limit: 1 }, signal);
  const lastIndex = items.length ? items[0].index : -1;
  /** @param {number} other */
  const question = (other) => (other >= 0 && other <= lastIndex ? { index: other, cursor: null } : null);
  return { previous: question(Math.min(index - 1, lastIndex)), next: question(index + 1) };
}

/**
 * Neighbours in the filtered list, which is read from the page `startCursor` on. If the question is the first one on
 * that page, the page does not tell what precedes it, so the list is then read again from its beginning.
 *
 * @param {Search} search
 * @param {string | null} startCursor
 * @returns {Promise<Neighbours | null>}
 */
async function findInList(search, startCursor) {
  const { runIteration, filters, index, signal } = search;
  /** @type {ListedQuestion | null} */
  let previous = null;
  let cursor = startCursor;
  for (let count = 0; count < MAX_PAGES; count += 1) {
    const parameters = { ...runIteration, ...filters, after: cursor, limit: PAGE_SIZE };
    const page = await get(QUESTIONS, parameters, signal);
    const questions = page.items.map((item) => ({ index: item.index, cursor }));
    const position = questions.findIndex((question) => question.index === index);
    previous = questions[position - 1] ?? previous;
    if (position >= 0 && (previous || startCursor === null)) {
      return { previous, next: questions[position + 1] ?? (await firstOfPage(search, page.next)) };
    }
    if (position >= 0 || !page.next) break;
    previous = questions.at(-1) ?? previous;
    cursor = page.next;
  }
  return startCursor === null ? null : findInList(search, null);
}

/**
 * @param {Search} search
 * @param {string | null} cursor
 * @returns {Promise<ListedQuestion | null>}
 */
async function firstOfPage({ runIteration, filters, signal }, cursor) {
  if (!cursor) return null;
  const { items } = await get(QUESTIONS, { ...runIteration, ...filters, after: cursor, limit: 1 }, signal);
  return items.length ? { index: items[0].index, cursor } : null;
}
