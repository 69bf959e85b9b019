// The list of runs as a table, and the choice between it and the cards.
import { html, useEffect, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { dateTime, duration, humanise, points, timeAgo } from "../format.js";
import { Share } from "../parts.js";
import { navigate, runUrl } from "../router.js";
import { isStored, RunStatus } from "../states.js";
import { browserStorage } from "../stored.js";
import { filteredUrl } from "./questions.js";

/** @typedef {import("../states.js").RunSummary} RunSummary */
/** @typedef {Schemas["LatestFigures"]} LatestFigures */
/** @typedef {"cards" | "table"} View */

const VIEW_KEY = "coevo-runs-view"; // of the view that this browser used last
const NARROW = matchMedia("(max-width: 900px)"); // a table of these columns would be wider than the screen
const POLL_MS = 5_000;
/** Which of several figures a cell shows: the first that the run has, with a note if it is not the usual one. */
const LABEL_ACCURACY = { label_accuracy: "", training_label_accuracy: "in training" };
const BENCHMARK_ACCURACY = { held_out: "", test_time: "test-time" };
const FIGURES = Object.keys({ ...LABEL_ACCURACY, ...BENCHMARK_ACCURACY });
/** @type {[title: string, sort: string | null, startsDescending?: boolean][]} `sort` is a parameter of the API */
const COLUMNS = [
  ["name", "name"],
  ["state", null],
  ["preset", null],
  ["method", null],
  ["iteration", null],
  ["label accuracy, kept", "label_accuracy", true],
  ["since first audit", "change"],
  ["held-out accuracy", "held_out", true],
  ["started", "created", true],
  ["duration", null],
];

/** The view that an address asks for or, without one, the view that was used last. @param {URLSearchParams} query */
export function useView(query) {
  const [isNarrow, setNarrow] = useState(NARROW.matches);
  useEffect(() => {
    const update = () => setNarrow(NARROW.matches);
    NARROW.addEventListener("change", update);
    return () => NARROW.removeEventListener("change", update);
  }, []);
  const view = query.get("view") ?? browserStorage.get(VIEW_KEY);
  return { view: view === "table" && !isNarrow ? "table" : "cards", isNarrow };
}

/** @param {{ query: URLSearchParams, view: string }} props */
export function ViewSwitch({ query, view }) {
  /** @param {View} chosen */
  function choose(chosen) {
    browserStorage.set(VIEW_KEY, chosen);
    navigate(filteredUrl("/", query, { view: chosen, after: query.get("after") }), { replace: true });
  }
  /** @type {View[]} */
  const views = ["cards", "table"];
  return html`<fieldset class="chips view"><legend class="sr">View</legend>
    ${views.map((name) => html`<button key=${name} type="button" aria-pressed=${view === name} onClick=${() => choose(name)}>${humanise(name)}</button>`)}
  </fieldset>`;
}

/** @param {{ runs: RunSummary[], query: URLSearchParams }} props */
export function RunsTable({ runs, query }) {
  const stored = runs.filter(isStored).map(({ name }) => name);
  const { data: latest } = useResponse(
    stored.length ? "/comparison/latest" : null,
    { run: stored, name: FIGURES },
    runs.some(({ active }) => active) ? POLL_MS : 0,
  );
  return html`<div class="panel"><div class="scroll" tabindex="0" role="region" aria-label="Runs"><table class="runs">
    <thead><tr>${COLUMNS.map(([title, sort, startsDescending]) => html`<${Header} key=${title} query=${query} title=${title} sort=${sort} startsDescending=${startsDescending} />`)}</tr></thead>
    <tbody>${runs.map((run) => html`<${Row} key=${run.name} run=${run} latest=${latest?.find((figures) => figures.run === run.name)} />`)}</tbody>
  </table></div></div>`;
}

/**
 * A column's title; a click on it sorts by the column, and a second one the other way round.
 *
 * @param {{ query: URLSearchParams, title: string, sort: string | null, startsDescending?: boolean }} props
 */
function Header({ query, title, sort, startsDescending = false }) {
  if (sort === null) return html`<th scope="col">${title}</th>`;
  const current = query.get("sort") ?? "-created";
  const [first, second] = startsDescending ? [`-${sort}`, sort] : [sort, `-${sort}`];
  const isSorted = [first, second].includes(current);
  const isDescending = current.startsWith("-");
  const href = filteredUrl("/", query, { sort: current === first ? second : first });
  return html`<th scope="col" aria-sort=${isSorted ? (isDescending ? "descending" : "ascending") : null}>
    <a href=${href}>${title}</a>${isSorted && html`<span aria-hidden="true"> ${isDescending ? "↓" : "↑"}</span>`}
  </th>`;
}

/** @param {{ run: RunSummary, latest: LatestFigures | undefined }} props */
function Row({ run, latest }) {
  const { name, preset, method, iteration, iterations, created_at } = run;
  const total = iterations === null ? "" : ` of ${iterations}`;
  return html`<tr>
    <th scope="row"><a href=${runUrl(name)}>${name}</a></th>
    <td class="state"><${RunStatus} run=${run} /></td>
    <td>${preset ?? html`<span class="none">none</span>`}</td>
    <td>${method}</td>
    <td>${iteration ?? (run.state === "done" ? iterations : "–")}${total}</td>
    <td><${Latest} latest=${latest} figures=${LABEL_ACCURACY} /></td>
    <td><${LabelChange} change=${run.label_change} /></td>
    <td><${Latest} latest=${latest} figures=${BENCHMARK_ACCURACY} /></td>
    <td><time datetime=${created_at} title=${dateTime(created_at)}>${timeAgo(created_at)}</time></td>
    <td>${duration(secondsOf(run))}</td>
  </tr>`;
}

/** How far label accuracy has moved since it was first measured. @param {{ change: RunSummary["label_change"] }} props */
export function LabelChange({ change }) {
  if (!change) return html`<span class="none">–</span>`;
  const { drifts, oracle, first_iteration, last_iteration } = change;
  return html`<span class="share"><b>${points(change.change)} points</b> <small>iteration ${first_iteration} to ${last_iteration}, by ${humanise(oracle)}</small>${drifts && html` <span class="status is-critical">drifts</span>`}</span>`;
}

/** From the run's start to now or, if no process works on it, until it got into its state. @param {RunSummary} run */
function secondsOf({ active, created_at, since }) {
  const end = active ? Date.now() : new Date(since).getTime();
  return (end - new Date(created_at).getTime()) / 1000;
}

/** @param {{ latest: LatestFigures | undefined, figures: Record<string, string> }} props */
function Latest({ latest, figures }) {
  const figure = Object.keys(figures).flatMap((name) => latest?.figures.find((other) => other.name === name) ?? [])[0];
  if (!figure) return html`<span class="none">–</span>`;
  return html`<${Share} estimate=${figure.last} />${figures[figure.name] && html` <small>${figures[figure.name]}</small>`}`;
}
