// The filters of the list of runs, which are part of the address.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { humanise } from "../format.js";
import { navigate } from "../router.js";
import { filteredUrl } from "./questions.js";

/** @typedef {{ name?: string, preset?: string, method?: string, state?: string, tag?: string[], note?: string, drifting?: string, open_alerts?: string, sort?: string }} RunFilters */

/** @type {Schemas["RunSummary"]["state"][]} */
const STATES = [
  "created",
  "waiting",
  "preparing",
  "queued",
  "running",
  "paused",
  "interrupted",
  "cancelled",
  "failed",
  "out_of_budget",
  "stopped",
  "done",
];
const SORTS = [
  ["-created", "newest first"],
  ["created", "oldest first"],
  ["name", "name"],
  ["-name", "name, last first"],
  ["change", "label accuracy, fell most first"],
  ["-label_accuracy", "label accuracy, highest first"],
  ["label_accuracy", "label accuracy, lowest first"],
  ["-held_out", "held-out accuracy, highest first"],
  ["held_out", "held-out accuracy, lowest first"],
];
/** @type {(keyof RunFilters)[]} */
const TEXTS = ["name", "preset", "method", "note"];
/** @type {(keyof RunFilters)[]} */
const RARER = ["preset", "method", "note"];
/** @type {(keyof RunFilters)[]} */
const NAMES = [...TEXTS, "state", "tag", "drifting", "open_alerts", "sort"];

/** The filters in an address. @param {URLSearchParams} query @returns {RunFilters} */
export function runFiltersIn(query) {
  const filters = Object.fromEntries(NAMES.map((name) => [name, query.get(name)]).filter(([, value]) => value));
  return query.has("tag") ? { ...filters, tag: query.getAll("tag") } : filters;
}

/** Whether fewer runs than all are listed. @param {RunFilters} filters */
export const isFiltered = ({ sort, ...filters }) =>
  Object.keys(filters).length > 0 || /accuracy|held_out|change/.test(sort ?? "");

/** @param {{ query: URLSearchParams }} props */
export function RunFilter({ query }) {
  const { data: tags } = useResponse("/tags", {});
  const filters = runFiltersIn(query);
  /** @param {Record<string, string | string[] | null>} changes */
  const setFilters = (changes) => navigate(filteredUrl("/", query, changes), { replace: true });
  /** @param {Event} event */
  function onSubmit(event) {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    setFilters(Object.fromEntries(TEXTS.map((name) => [name, String(form.get(name) ?? "").trim()])));
  }
  const chosen = filters.tag ?? [];
  /** @param {keyof RunFilters} name */
  const textField = (name) =>
    html`<label key=${name}>${name[0].toUpperCase() + name.slice(1)} <input type="search" name=${name} maxlength="200" defaultValue=${filters[name] ?? ""} key=${filters[name] ?? ""} onChange=${(event) => setFilters({ [name]: event.target.value.trim() })} /></label>`;
  const others = (tags ?? []).filter(({ tag }) => !chosen.includes(tag));
  return html`<form class="filters" role="search" aria-label="Runs" onSubmit=${onSubmit}>
    ${textField("name")}
    <label>State <select value=${filters.state ?? ""} onChange=${(event) => setFilters({ state: event.target.value })}>
      <option value="">any</option>${STATES.map((state) => html`<option key=${state} value=${state}>${humanise(state)}</option>`)}
    </select></label>
    <label>Show <select value=${["drifting", "open_alerts"].find((name) => query.has(name)) ?? ""} onChange=${(event) => setFilters({ drifting: null, open_alerts: null, ...(event.target.value && { [event.target.value]: "true" }) })}>
      <option value="">all</option><option value="drifting">drifting now</option><option value="open_alerts">with open alerts</option>
    </select></label>
    ${
      others.length > 0 &&
      html`<label>Tag <select value="" onChange=${(event) => setFilters({ tag: [...chosen, event.target.value] })}>
      <option value="">any</option>${others.map(({ tag, runs }) => html`<option key=${tag} value=${tag}>${tag} (${runs})</option>`)}
    </select></label>`
    }
    <label>Sort by <select value=${filters.sort ?? "-created"} onChange=${(event) => setFilters({ sort: event.target.value === "-created" ? null : event.target.value })}>
      ${SORTS.map(([sort, title]) => html`<option key=${sort} value=${sort}>${title}</option>`)}
    </select></label>
    <button class="quiet">Search</button>
    ${chosen.map((tag) => html`<button key=${tag} type="button" class="quiet" onClick=${() => setFilters({ tag: chosen.filter((other) => other !== tag) })}>Remove tag ${tag}</button>`)}
    ${(isFiltered(filters) || filters.sort) && html`<a href="/">All runs</a>`}
    <details class="more" open=${RARER.some((name) => filters[name])}>
      <summary>More filters</summary>
      <div class="filters">${RARER.map(textField)}</div>
    </details>
  </form>`;
}
