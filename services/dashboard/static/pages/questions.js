// The list of an iteration's questions: its filters, which are part of the address, its pages, and its exports.
import { html, useEffect, useLayoutEffect, useRef, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { humanise, number } from "../format.js";
import { Answer, Typeset } from "../math.js";
import { PAGE_SIZE } from "../neighbours.js";
import { Empty, isLive, Loading, ORACLE_VERDICTS, OracleVerdict, Table, VERDICTS, Verdict } from "../parts.js";
import { navigate, withQuery } from "../router.js";
import { Exports } from "./exports.js";

/**
 * The filters of the list of questions, named like the parameters of the API.
 *
 * @typedef {{
 *   verdict?: string[],
 *   p_hat_min?: string,
 *   p_hat_max?: string,
 *   text?: string,
 *   oracle?: string,
 *   oracle_verdict?: string,
 *   cluster?: string,
 *   sort?: string,
 *   after?: string,
 * }} QuestionFilters
 */

const POLL_MS = 6_000;
const SORTS = [
  ["index", "number, lowest first"],
  ["p_hat", "p̂, lowest first"],
  ["-p_hat", "p̂, highest first"],
  ["-index", "number, highest first"],
];
/** @type {(keyof QuestionFilters)[]} */
const FILTERS = ["verdict", "p_hat_min", "p_hat_max", "text", "oracle", "oracle_verdict", "cluster", "sort", "after"];

/** The filters in an address. @param {URLSearchParams} query @returns {QuestionFilters} */
export function filtersIn(query) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]).filter(([, value]) => value));
  return query.has("verdict") ? { ...filters, verdict: query.getAll("verdict") } : filters;
}

/** Whether filters may leave out questions. @param {QuestionFilters} filters */
const isFiltered = (filters) => FILTERS.some((name) => name !== "sort" && filters[name]);

/**
 * The address of the first page of the list, or of the page `after`, with some filters changed. A filter that is null
 * or "" is removed.
 *
 * @param {string} url
 * @param {URLSearchParams} query the current filters
 * @param {Record<string, string | string[] | null>} changes
 */
export function filteredUrl(url, query, changes) {
  const newQuery = new URLSearchParams(query);
  for (const [name, values] of Object.entries({ after: null, ...changes })) {
    newQuery.delete(name);
    for (const value of [values].flat()) if (value) newQuery.append(name, value);
  }
  return withQuery(url, newQuery);
}

const SECTION = "questions"; // id of the list's section

/** The address of a list of questions, such as `filteredUrl` returns, at which the page is scrolled to the list. @param {string} url */
export const scrolledToQuestions = (url) => `${url}#${SECTION}`;

/**
 * @param {{
 *   run: Schemas["RunWithConfig"], t: number, url: string, query: URLSearchParams, statistics: Schemas["Statistics"],
 * }} props
 */
export function Questions({ run, t, url, query, statistics }) {
  const filters = filtersIn(query);
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const previousQuery = useRef(String(query));
  useEffect(() => {
    // When the list changes, the link that was clicked may disappear and the focus is lost. It then moves to the
    // heading.
    if (previousQuery.current !== String(query) && document.activeElement === document.body) heading.current?.focus();
    previousQuery.current = String(query);
    if (location.hash === `#${SECTION}`) heading.current?.scrollIntoView();
  }, [String(query)]);
  const { data, error } = useResponse(
    "/runs/{run}/iterations/{iteration}/questions",
    { run: run.name, iteration: t, limit: PAGE_SIZE, ...filters },
    isLive(run) ? POLL_MS : 0,
  );
  return html`<section class="panel wide questions" id=${SECTION}>
    <h2 ref=${heading} tabindex="-1">Questions</h2>
    <${Filters} url=${url} query=${query} filters=${filters} statistics=${statistics} />
    <${Loading} data=${data} error=${error}>
      ${data && (data.items.length ? html`<${QuestionTable} questions=${data.items} url=${url} query=${query} />` : html`<${Empty}>${isFiltered(filters) ? "No questions match these filters." : "No questions yet."}</${Empty}>`)}
      <nav class="pager" aria-label="Pages of questions">
        ${filters.after && html`<a href=${scrolledToQuestions(filteredUrl(url, query, {}))}>First page</a>`}
        ${data?.next && html`<a href=${scrolledToQuestions(filteredUrl(url, query, { after: data.next }))} rel="next">Next page</a>`}
      </nav>
    </${Loading}>
    <${Exports} run=${run} t=${t} filters=${filters} />
  </section>`;
}

/**
 * @param {{ url: string, query: URLSearchParams, filters: QuestionFilters, statistics: Schemas["Statistics"] }} props
 */
function Filters({ url, query, filters, statistics }) {
  const chosenVerdicts = filters.verdict ?? [];
  /** @param {Record<string, string | string[] | null>} changes */
  const setFilters = (changes) => navigate(filteredUrl(url, query, changes), { replace: true });
  /** @param {string} verdict */
  const toggleVerdict = (verdict) => {
    const others = chosenVerdicts.filter((other) => other !== verdict);
    setFilters({ verdict: chosenVerdicts.includes(verdict) ? others : [...chosenVerdicts, verdict] });
  };
  /** Without a verdict, the filter by oracle is removed too. @param {string} verdict */
  const setOracleVerdict = (verdict) =>
    setFilters({ oracle_verdict: verdict, oracle: verdict ? (filters.oracle ?? null) : null });
  /** @param {EventOn<HTMLFormElement>} event */
  function onSubmit(event) {
    event.preventDefault();
    const text = /** @type {HTMLInputElement} */ (event.target.elements.namedItem("text"));
    setFilters({ text: text.value });
  }
  const verdictButtons = VERDICTS.filter((verdict) => statistics.verdicts[verdict]).map((verdict) => {
    const isChosen = chosenVerdicts.includes(verdict);
    return html`<button key=${verdict} type="button" aria-pressed=${isChosen} onClick=${() => toggleVerdict(verdict)}>
      <i class="swatch v-${verdict}"></i>${humanise(verdict)} <small>${number(statistics.verdicts[verdict])}</small>
    </button>`;
  });
  return html`<form class="filters" role="search" aria-label="Questions" onSubmit=${onSubmit}>
    <fieldset class="chips">
      <legend class="sr">Verdict</legend>
      ${verdictButtons}
    </fieldset>
    <label>Oracle verdict <select value=${filters.oracle_verdict ?? ""} onChange=${(event) => setOracleVerdict(event.target.value)}>
      <option value="">any</option>${ORACLE_VERDICTS.map((verdict) => html`<option key=${verdict} value=${verdict}>${humanise(verdict)}</option>`)}
    </select></label>
    <label>p̂ from <${FilterInput} type="number" min="0" max="1" step="0.05" value=${filters.p_hat_min} onCommit=${(p_hat_min) => setFilters({ p_hat_min })} /></label>
    <label>to <${FilterInput} type="number" min="0" max="1" step="0.05" value=${filters.p_hat_max} onCommit=${(p_hat_max) => setFilters({ p_hat_max })} /></label>
    <label>Sort by <select value=${filters.sort ?? "index"} onChange=${(event) => setFilters({ sort: event.target.value === "index" ? null : event.target.value })}>
      ${SORTS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
    </select></label>
    <span class="search">
      <label>Text <${FilterInput} type="search" name="text" maxlength="200" value=${filters.text} onCommit=${(text) => setFilters({ text })} /></label>
      <button class="quiet">Search</button>
    </span>
    ${filters.cluster && html`<a class="chip" href=${filteredUrl(url, query, { cluster: null })}>cluster ${filters.cluster} ×</a>`}
    ${filters.oracle && html`<a class="chip" href=${filteredUrl(url, query, { oracle: null })}>by ${humanise(filters.oracle)} ×</a>`}
    ${isFiltered(filters) && html`<a href=${url}>Clear filters</a>`}
  </form>`;
}

/**
 * An input that reports its value when the user leaves the field or presses Enter. A value that is half typed is kept
 * when the page draws new data.
 *
 * @param {{ value?: string, onCommit: (value: string) => void }} props
 */
function FilterInput({ value = "", onCommit, ...attributes }) {
  const [typed, setTyped] = useState(value);
  useLayoutEffect(() => setTyped(value), [value]);
  return html`<input ...${attributes} value=${typed} onInput=${(event) => setTyped(event.target.value)} onChange=${(event) => onCommit(event.target.value)} />`;
}

/**
 * @param {{ questions: Schemas["QuestionSummary"][], url: string, query: URLSearchParams, label?: string }} props
 */
export function QuestionTable({ questions, url, query, label = "Questions" }) {
  const isGiven = questions.some(({ given_answer }) => given_answer !== null);
  const given = isGiven ? ["True answer (given)"] : [];
  const head = ["#", "Question", ...given, "Pseudo-label", "p̂", "Verdict", "Oracle"];
  return html`<${Table} label=${label} class="questions" head=${head}>
    <tbody>
      ${questions.map((question) => html`<${QuestionRow} key=${question.id} question=${question} isGiven=${isGiven} href=${withQuery(`${url}/${question.index}`, query)} />`)}
    </tbody>
  </${Table}>`;
}

/** @param {{ question: Schemas["QuestionSummary"], isGiven: boolean, href: string }} props `href` is the question's page */
function QuestionRow({ question, isGiven, href }) {
  const { index, text, given_answer, answer, m, p_hat, votes, denominator, parsed, verdict, gate, oracles } = question;
  return html`<tr>
    <td><a href=${href}>${index}</a></td>
    <td class="text">${text === null ? html`<span class="none">malformed</span>` : html`<a class="plain" href=${href}><${Typeset} text=${text.length > 280 ? `${text.slice(0, 280)}…` : text} /></a>`}</td>
    ${isGiven && html`<td>${given_answer === null ? "" : html`<${Answer} text=${given_answer} />`}</td>`}
    <td>${m === null ? "" : html`<${Answer} text=${answer} />`}</td>
    <td class="p-hat">${p_hat === null ? "" : html`<meter min="0" max="1" value=${p_hat} aria-label="p-hat"></meter> ${votes}/${denominator === "all" ? m : parsed}`}</td>
    <td><${Verdict} verdict=${verdict} gate=${gate} /></td>
    <td>${oracles.map((label) => html`<div key=${label.oracle}><${OracleVerdict} label=${label} /></div>`)}</td>
  </tr>`;
}
