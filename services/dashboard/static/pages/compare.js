// Compares runs: the same figures of each by iteration, and their label accuracy by one oracle at a time.
import { html } from "/static/preact.js";
import { useResponse, useResponses } from "../api.js";
import { IterationChart } from "../charts.js";
import { humanise, number, percent } from "../format.js";
import { FIGURES } from "../known_figures.js";
import { configOf, Empty, Fold, Heading, Loading, Panel } from "../parts.js";
import { navigate, runUrl, withQuery } from "../router.js";
import { seriesNamed, TABLE_HEAD, tableRows } from "../series.js";
import { isStored } from "../states.js";
import { ArmComparison } from "./comparison.js";
import { LatestFigures } from "./latest.js";
import { AddedSeries, CurvePanel, SeriesPicker } from "./overlay.js";
import { DifferingSettings } from "./settings.js";

/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */
/**
 * @typedef {{ name: string, colour: string, detail: Schemas["RunWithConfig"], seriesPoints: SeriesPoint[] }} ComparedRun
 */
/**
 * A figure that is compared. `oracle` is null if no run has label accuracy by any oracle.
 *
 * @typedef {{
 *   name: string,
 *   over?: string,
 *   oracle?: string | null,
 *   title: string,
 *   about: string,
 *   share: boolean,
 * }} Figure
 */

const OFFERED = 30; // runs, the newest ones of those whose name has the text that is searched for
const COLOURS = ["var(--k1)", "var(--k2)", "var(--k3)", "var(--k4)", "var(--k5)", "var(--k6)"];

const ABOUT = {
  held_out: "pass@1 of each Solver on questions that are not used in training.",
  test_time: "pass@1 of each Solver on the questions that it trains on.",
  label_accuracy:
    "Over the kept questions. Oracles grade differently, so all runs are compared by the same oracle. Hollow points are estimates from p̂.",
  training_label_accuracy: "The share of right labels among those that the Solver's method made in training.",
  positive_labels: "The prompts of a training step that the Solver's method gave a label, at the end of its training.",
  negative_labels:
    "The answers of a training step that the Solver's method took for wrong, at the end of its training.",
  kept_share: "The share of the candidates that were kept.",
  policy_entropy: "In nats per token, at the end of the Solver's training.",
};

/**
 * @param {string | null} oracle label accuracy is compared by this one only, because oracles grade differently
 * @returns {Figure[]}
 */
const figuresFor = (oracle) =>
  Object.entries(ABOUT).map(([name, about]) => {
    const { title, share } = FIGURES[name];
    if (name !== "label_accuracy") return { name, title, about, share };
    const by = oracle ? `, by ${humanise(oracle)}` : "";
    return { name, over: "kept", oracle, title: `${title} (kept)${by}`, about, share };
  });

/** Figures that most runs do not have. They are shown only if one of the runs has them. */
const OPTIONAL_FIGURES = ["test_time", "training_label_accuracy", "positive_labels", "negative_labels"];

/** @param {SeriesPoint[]} seriesPoints @param {Figure} figure */
const seriesOf = (seriesPoints, { name, over, oracle }) =>
  seriesNamed(seriesPoints, name).find(
    (series) => (!over || series.over === over) && (oracle === undefined || series.oracle === oracle),
  );

/** The oracles that graded kept questions of the run. @param {ComparedRun} run */
const oraclesOf = ({ seriesPoints }) =>
  seriesNamed(seriesPoints, "label_accuracy")
    .filter((series) => series.over === "kept")
    .map((series) => series.oracle);

/** The oracles of all runs. Those that graded the most runs come first. @param {ComparedRun[]} runs */
function oraclesOfAll(runs) {
  const oracles = runs.flatMap(oraclesOf);
  /** @param {string} oracle */
  const runCount = (oracle) => oracles.filter((other) => other === oracle).length;
  return [...new Set(oracles)].sort((a, b) => runCount(b) - runCount(a) || a.localeCompare(b));
}

/**
 * Changes the address. A parameter without values is removed, and the runs come first.
 *
 * @param {Record<string, string[]>} changes
 */
function change(changes) {
  const current = new URLSearchParams(location.search);
  const query = new URLSearchParams();
  for (const name of new Set(["run", ...current.keys(), ...Object.keys(changes)])) {
    for (const value of changes[name] ?? current.getAll(name)) query.append(name, value);
  }
  navigate(withQuery("/compare", query), { replace: true });
}

/** @param {{ query: URLSearchParams }} props */
export function ComparePage({ query }) {
  const names = query.getAll("run").slice(0, COLOURS.length);
  const leftOut = query.getAll("run").slice(COLOURS.length);
  const experiment = query.get("experiment");
  const { data: experiments } = useResponse("/experiments", {});
  const part = query.get("find");
  const { data: page, error: pageError } = useResponse("/runs", { limit: OFFERED, name: part });
  const { data: details, error: detailsError } = useResponses(names.map((run) => ["/runs/{run}", { run }]));
  const { data: series, error: seriesError } = useResponses(names.map((run) => ["/runs/{run}/series", { run }]));
  const { data: settings, error: settingsError } = useResponse(names.length ? "/comparison/settings" : null, {
    run: names,
  });
  /** @type {ComparedRun[] | null} */
  const runs =
    details &&
    series &&
    names.map((name, i) => ({ name, colour: COLOURS[i], detail: details[i], seriesPoints: series[i] }));
  /** @param {string} name */
  const toggle = (name) => {
    const otherNames = names.filter((other) => other !== name);
    change({ run: names.includes(name) ? otherNames : [...names, name].slice(-COLOURS.length) });
  };
  const offered = page?.items.filter(isStored).map(({ name }) => name) ?? [];
  // Those offered keep their places, since a button that is moved loses the focus.
  const chips = [...names.filter((name) => !offered.includes(name)), ...offered];
  const comparison = html`<${Loading} data=${settings && runs} error=${settingsError ?? detailsError ?? seriesError}>${runs && settings && html`<${Comparison} runs=${runs} settings=${settings} query=${query} />`}</${Loading}>`;
  return html`<${Heading} title="Compare runs">The same figures of up to ${COLOURS.length} runs. Bands are 95% intervals.</${Heading}>
    ${leftOut.length > 0 && html`<p class="meta unlisted">The page draws ${COLOURS.length} runs. Left out: ${leftOut.join(", ")}. An experiment has no such limit, and neither has <code>coevo compare</code>.</p>`}
    <form class="filters" role="search" aria-label="Runs to compare" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <label>Find a run <input type="search" maxlength="200" defaultValue=${part ?? ""} onChange=${(/** @type {EventOn<HTMLInputElement>} */ event) => change({ find: [event.target.value.trim()].filter(Boolean) })} /></label>
    </form>
    <${Loading} data=${page} error=${pageError}>
      <fieldset class="chips"><legend class="sr">Runs</legend>
        ${chips.map((name) => html`<${RunToggle} key=${name} name=${name} colour=${COLOURS[names.indexOf(name)]} toggle=${toggle} />`)}
      </fieldset>
      ${page?.next && html`<p class="meta">These are the ${OFFERED} newest${part ? " that match" : ""}; a part of its name finds any other.</p>`}
    </${Loading}>
    ${
      experiments &&
      experiments.length > 0 &&
      html`<p>Experiments: ${experiments.map(
        ({ name }) => html`<a key=${name} href=${`/compare?experiment=${encodeURIComponent(name)}`}>${name}</a> `,
      )}</p>`
    }
    ${experiment && html`<div class="panels"><${ArmComparison} names=${[experiment]} colours=${COLOURS} /></div>`}
    ${names.length === 0 ? !experiment && html`<${Empty}>Select two or more runs.</${Empty}>` : comparison}`;
}

/**
 * @param {{ name: string, colour?: string, toggle: (name: string) => void }} props `colour` is missing if the run is
 *   not compared
 */
function RunToggle({ name, colour, toggle }) {
  return html`<button type="button" aria-pressed=${colour !== undefined} onClick=${() => toggle(name)}>
    ${colour && html`<i class="swatch" style=${{ background: colour }}></i>`}${name}
  </button>`;
}

/**
 * Whether several runs have answered the questions of the same benchmark. Others, the API refuses to compare.
 *
 * @param {ComparedRun[]} runs
 */
function isComparable(runs) {
  const benchmarks = new Set(runs.map(({ detail }) => configOf(detail).evaluation.benchmark));
  /** @param {ComparedRun} run */
  const isEvaluated = ({ seriesPoints }) =>
    ["held_out", "test_time"].some((name) => seriesNamed(seriesPoints, name).length > 0);
  return runs.length > 1 && benchmarks.size === 1 && runs.every(isEvaluated);
}

/** @param {{ runs: ComparedRun[], settings: Schemas["SettingsComparison"], query: URLSearchParams }} props */
function Comparison({ runs, settings, query }) {
  const names = runs.map(({ name }) => name);
  const oracleInAddress = query.get("oracle");
  const usedOracles = oraclesOfAll(runs);
  // The address may name an oracle that has graded none of these runs, for example after one of them was deselected.
  const isExtra = oracleInAddress && !usedOracles.includes(oracleInAddress);
  const oracles = isExtra ? [oracleInAddress, ...usedOracles] : usedOracles;
  const oracle = oracleInAddress ?? oracles[0] ?? null;
  const pinned = query.get("baseline");
  const baseline = pinned && names.includes(pinned) ? pinned : null;
  const hasSeeds = settings.groups.some((group) => group.runs.length > 1);
  // Runs of a single group are compared with each other, unless their mean is asked for.
  const grouped = hasSeeds && (query.get("seeds") ?? (settings.groups.length > 1 ? "mean" : "single")) === "mean";
  const by = query.get("by") === "step" ? "step" : "iteration";
  const { data: known } = useResponse("/comparison/figures", { run: names });
  const chosen = query.getAll("series");
  const added = (known ?? []).filter((figure) => chosen.includes(figure.name));
  const figures = figuresFor(oracle).filter(
    ({ name }) =>
      !OPTIONAL_FIGURES.includes(name) || runs.some(({ seriesPoints }) => seriesNamed(seriesPoints, name).length),
  );
  const colours = runs.map(({ colour }) => colour);
  /**
   * Whether several runs have it, or it was asked for: there is a single run, or its oracle was chosen.
   *
   * @param {Figure} figure
   */
  const isShared = (figure) =>
    runs.length < 2 ||
    (figure.oracle && figure.oracle === oracleInAddress) ||
    runs.filter(({ seriesPoints }) => seriesOf(seriesPoints, figure)).length > 1;
  const shared = figures.filter(isShared);
  const others = figures.filter((figure) => !isShared(figure));
  /** @param {Figure} figure */
  const figurePanel = (figure) =>
    grouped && known?.some(({ name }) => name === figure.name)
      ? html`<${CurvePanel} key=${figure.name} title=${figure.title} about=${figure.about} names=${names} colours=${colours} share=${figure.share} parameters=${{ name: figure.name, grouped, oracle: figure.oracle ?? null }} />`
      : html`<${FigurePanel} key=${figure.name} figure=${figure} runs=${runs} />`;
  // The first run is the baseline of the API's comparison.
  const ordered = baseline ? [...runs].sort((a, b) => Number(b.name === baseline) - Number(a.name === baseline)) : runs;
  return html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      ${oracle && html`<label>Label accuracy by <select value=${oracle} onChange=${(event) => change({ oracle: [event.target.value] })}>${oracles.map((name) => html`<option key=${name} value=${name}>${humanise(name)}</option>`)}</select></label>`}
      <label>Baseline <select value=${baseline ?? ""} onChange=${(event) => change({ baseline: event.target.value ? [event.target.value] : [] })}>
        <option value="">none</option>${names.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>
      ${hasSeeds && html`<label>Runs that differ only in their seed <select value=${grouped ? "mean" : "single"} onChange=${(event) => change({ seeds: [event.target.value] })}><option value="mean">as their mean</option><option value="single">each</option></select></label>`}
      ${oracle && html`<${MissingAudits} runs=${runs} oracle=${oracle} />`}
    </form>
    ${grouped && settings.groups.map(({ label, runs: members }) => html`<p class="meta" key=${label}>${label}: ${members.join(", ")}</p>`)}
    <div class="panels">
      <${DifferingSettings} comparison=${settings} />
      ${isComparable(runs) && html`<${ArmComparison} names=${ordered.map(({ name }) => name)} colours=${ordered.map(({ colour }) => colour)} />`}
      ${shared.map(figurePanel)}
    </div>
    <${Fold} title="Figures that only one of these runs has, or none" count=${others.length}><div class="panels">${others.map(figurePanel)}</div></${Fold}>
    ${known && html`<${SeriesPicker} figures=${known} chosen=${chosen} by=${by} change=${change} />`}
    <div class="panels">
      ${added.map((figure) => html`<${AddedSeries} key=${figure.name} figure=${figure} names=${names} colours=${colours} by=${by} grouped=${grouped} />`)}
      <${LatestFigures} runs=${runs.map(({ name, detail }) => ({ name, detail, method: configOf(detail).solver.reward.type }))} figures=${figures} baseline=${baseline} oracle=${oracle} />
    </div>`;
}

/**
 * Names the runs that the oracle has not graded, and the oracles that have graded them, since a missing line is easily
 * overlooked.
 *
 * @param {{ runs: ComparedRun[], oracle: string }} props
 */
function MissingAudits({ runs, oracle }) {
  const notAudited = runs.filter((run) => !oraclesOf(run).includes(oracle));
  if (notAudited.length === 0) return null;
  /** @param {ComparedRun} run */
  const explanation = (run) => {
    const otherOracles = oraclesOf(run).map(humanise).join(", ");
    return otherOracles ? `not audited by ${humanise(oracle)}, but by ${otherOracles}` : "not audited";
  };
  return html`<span role="status">${notAudited.map((run) => html`<span key=${run.name}><b>${run.name}</b> was ${explanation(run)}. </span>`)}</span>`;
}

/** @param {{ figure: Figure, runs: ComparedRun[] }} props */
function FigurePanel({ figure, runs }) {
  const { title, about, share } = figure;
  const lines = runs.flatMap(({ name, colour, seriesPoints }) => {
    const series = seriesOf(seriesPoints, figure);
    if (!series) return [];
    const points = series.points.map((point) => ({ ...point, href: runUrl(name) }));
    return [{ name: series.oracle ? `${name} by ${humanise(series.oracle)}` : name, colour, points }];
  });
  const table = { head: TABLE_HEAD, rows: tableRows(lines, share ? percent : number) };
  const chart = html`<${IterationChart} lines=${lines} share=${share} label=${title} />`;
  return html`<${Panel} title=${title} about=${about} table=${table}>
    ${lines.length ? chart : html`<${Empty}>None of these runs has this figure.</${Empty}>`}
  </${Panel}>`;
}
