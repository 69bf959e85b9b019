// The list of all runs, as cards or as a table, and a form that starts a run.
import { html, useRef, useState } from "/static/preact.js";
import { post, toError, useResponse } from "../api.js";
import { IterationChart } from "../charts.js";
import { Empty, ErrorMessage, Heading, isLive, Loading, Share } from "../parts.js";
import { runUrl } from "../router.js";
import { evaluatedAccuracy, labelAccuracy, latestPoint } from "../series.js";
import { isStored, Reason, RunStatus, withCode } from "../states.js";
import { NotesOf } from "./notes.js";
import { filteredUrl } from "./questions.js";
import { isFiltered, RunFilter, runFiltersIn } from "./run_filter.js";
import { LabelChange, RunsTable, useView, ViewSwitch } from "./runs_table.js";

/** @typedef {import("../states.js").RunSummary} RunSummary */
/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */

const POLL_MS = 5_000;
const MAX_DOTS = 24;
const CURVES = ["label_accuracy", "training_label_accuracy", "held_out", "test_time"];

/** @param {{ query: URLSearchParams }} props */
export function RunsPage({ query }) {
  const after = query.get("after");
  const filters = runFiltersIn(query);
  const { view, isNarrow } = useView(query);
  const { data, error } = useResponse("/runs", { limit: 20, after, ...filters }, POLL_MS);
  return html`
    <${Heading} title="Runs" aside=${html`<${StartRun} />`}>
      In each run, a Solver learns, iteration after iteration, from the questions of a Challenger or from given prompts.
    </${Heading}>
    <${RunFilter} query=${query} />
    <${Loading} data=${data} error=${error}>
      ${data?.items.length === 0 && isFiltered(filters) && html`<${Empty}>No runs match these filters.</${Empty}>`}
      ${data?.items.length === 0 && !isFiltered(filters) && html`<${Empty}>No runs yet. Start one with the button above, or with <code>coevo run demo</code>.</${Empty}>`}
      ${data?.problem && html`<p class="meta unlisted">Runs that wait in Prefect cannot be listed: ${withCode(data.problem)}</p>`}
      ${data && data.items.length > 0 && !isNarrow && html`<${ViewSwitch} query=${query} view=${view} />`}
      ${data && (view === "table" ? html`<${RunsTable} runs=${data.items} query=${query} />` : html`<${RunCards} runs=${data.items} />`)}
      <nav class="pager" aria-label="Pages of runs">
        ${after && html`<a href=${filteredUrl("/", query, {})}>First page</a>`}
        ${data?.next && html`<a href=${filteredUrl("/", query, { after: data.next })} rel="next">Next page</a>`}
      </nav>
    </${Loading}>
  `;
}

/** The curves of all cards come with one request, and again and again only those of runs that are at work. @param {{ runs: RunSummary[] }} props */
function RunCards({ runs }) {
  const stored = runs.filter(isStored);
  const ofLive = useCurves(stored.filter(isLive), POLL_MS);
  const ofOthers = useCurves(
    stored.filter((run) => !isLive(run)),
    0,
  );
  // What was shown stays while other curves are fetched, because one of the runs has begun or ended.
  const shown = useRef(/** @type {Map<string, SeriesPoint[]>} */ (new Map()));
  for (const { run, points } of [...ofOthers, ...ofLive]) shown.current.set(run, points);
  return html`<div class="cards">${runs.map((run) => html`<${RunCard} key=${run.name} run=${run} seriesPoints=${shown.current.get(run.name)} />`)}</div>`;
}

/** @param {RunSummary[]} runs @param {number} interval */
function useCurves(runs, interval) {
  const names = runs.map(({ name }) => name);
  const { data } = useResponse(names.length ? "/series" : null, { run: names, name: CURVES }, interval);
  return data ?? [];
}

/** @param {{ run: RunSummary, seriesPoints: SeriesPoint[] | undefined }} props `seriesPoints` are undefined until they have arrived */
function RunCard({ run, seriesPoints }) {
  const { name, preset, seed } = run;
  const url = runUrl(name);
  const heading = html`<h2><a href=${url}>${name}</a> <${RunStatus} run=${run} /></h2>`;
  if (!isStored(run)) {
    return html`<article class="card run"><div class="words">
      ${heading}
      <p class="meta">${preset ?? "no preset"}</p>
      <${Reason} run=${run} />
    </div></article>`;
  }
  const label = labelAccuracy(seriesPoints ?? []);
  const benchmark = evaluatedAccuracy(seriesPoints ?? []);
  const lines = [];
  if (label) {
    lines.push({ name: `label accuracy, ${label.note}`, colour: "var(--c-kept)", points: label.points });
  }
  if (benchmark) {
    lines.push({ name: benchmark.title.toLowerCase(), colour: "var(--c-held-out)", points: benchmark.points });
  }
  const chartLabel = `Label accuracy and accuracy on the benchmark of ${name}`;
  const chart = html`<${IterationChart} lines=${lines} height=${170} label=${chartLabel} />`;
  return html`<article class="card run">
    <div class="words">
      ${heading}
      <p class="meta">${preset ?? "no preset"} · seed ${seed}</p>
      <${NotesOf} run=${run} />
      <${Reason} run=${run} />
      <${Dots} done=${run.iterations_done ?? 0} total=${run.iterations ?? 0} current=${isLive(run) ? run.iteration : null} />
      <dl class="pairs">
        <dt>Label accuracy${label && html` <small>${label.note}</small>`}</dt>
        <dd><${Share} estimate=${latestPoint(label)} /></dd>
        ${run.label_change && html`<dt>Since first audit</dt><dd><${LabelChange} change=${run.label_change} /></dd>`}
        ${benchmark && html`<dt>${benchmark.title}</dt><dd><${Share} estimate=${benchmark.points.at(-1)} countLabel="questions" /></dd>`}
      </dl>
    </div>
    <div class="glance">
      ${lines.length > 0 ? chart : seriesPoints && html`<${Empty}>No iteration has been measured yet.</${Empty}>`}
    </div>
  </article>`;
}

/**
 * A dot for each iteration.
 *
 * @param {{ done: number, total: number, current: number | null }} props
 */
function Dots({ done, total, current }) {
  const count = Math.min(total, MAX_DOTS);
  /** @param {number} i */
  const className = (i) => (i < done ? "done" : i + 1 === current ? "current" : "");
  return html`<p class="dots">
    ${Array.from({ length: count }, (_, i) => html`<i key=${i} class=${className(i)}></i>`)}
    <span>${done} of ${total} iterations</span>
  </p>`;
}

function StartRun() {
  const [open, setOpen] = useState(false);
  return html`<div class="start">
    <button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Close" : "Start a run"}</button>
    ${open && html`<${StartForm} />`}
  </div>`;
}

function StartForm() {
  const { data: presets, error: presetsError } = useResponse("/presets", {});
  const [fields, setFields] = useState({ preset: "demo", name: "", iterations: "", settings: "" });
  const [startError, setStartError] = useState(/** @type {Error | null} */ (null));
  const [flowRun, setFlowRun] = useState(/** @type {Schemas["Triggered"] | null} */ (null));
  /** @param {string} name @returns {(event: EventOn<HTMLInputElement>) => void} */
  const setField = (name) => (event) => setFields({ ...fields, [name]: event.target.value });
  /** @param {Event} event */
  async function onSubmit(event) {
    event.preventDefault();
    setStartError(null);
    const { preset, name, iterations, settings } = fields;
    const request = { name: name || preset, preset, overrides: parseSettings(settings) };
    try {
      setFlowRun(await post("/runs", {}, iterations ? { ...request, iterations: Number(iterations) } : request));
    } catch (error) {
      setStartError(toError(error));
    }
  }
  if (flowRun) {
    return html`<div class="card form" role="status">
      <p><b>${flowRun.run}</b> is ${flowRun.state}: ${flowRun.reason}. The list below shows its progress.</p>
      <p><a href=${flowRun.url} target="_blank" rel="noopener">Flow run in Prefect</a> · <a href=${runUrl(flowRun.run)}>Page of the run</a></p>
    </div>`;
  }
  const about = presets?.find(({ name }) => name === fields.preset)?.about;
  return html`<form class="card form" onSubmit=${onSubmit}>
    <${ErrorMessage} error=${presetsError ?? startError} />
    <label>Preset
      <select value=${fields.preset} onChange=${setField("preset")}>${presets?.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}</select>
    </label>
    ${about && html`<p class="about">${about}</p>`}
    <label>Name <input value=${fields.name} onInput=${setField("name")} placeholder=${fields.preset} pattern="[A-Za-z0-9][A-Za-z0-9._\\-]*" title="At most 64 letters, digits and . _ -, first a letter or digit" maxlength="64" /></label>
    <label>Iterations <input type="number" min="1" value=${fields.iterations} onInput=${setField("iterations")} placeholder="from the preset" /></label>
    <label>Settings <textarea rows="2" value=${fields.settings} onInput=${setField("settings")} placeholder="dataset.candidates = 320"></textarea></label>
    <button>Start run</button>
  </form>`;
}

/**
 * The overrides in lines of the form `name = value`. A value that is not valid JSON is taken as text.
 *
 * @param {string} text
 */
function parseSettings(text) {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const [name, ...rest] = line.split("=");
      const value = rest.join("=").trim();
      try {
        return [name.trim(), JSON.parse(value)];
      } catch {
        return [name.trim(), value];
      }
    }),
  );
}
