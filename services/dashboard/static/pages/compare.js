// Compares runs: the same figures of each by iteration, and their label accuracy by one oracle at a time.
import { html } from "/static/preact.js";
import { useResponse, useResponses } from "../api.js";
import { IterationChart } from "../charts.js";
import { humanise, number, percent } from "../format.js";
import { configOf, Empty, Heading, Legend, Loading, Panel, Share, Status } from "../parts.js";
import { navigate, runUrl } from "../router.js";
import { latestPoint, seriesNamed, TABLE_HEAD, tableRows } from "../series.js";
import { isStored } from "../states.js";
import { ArmComparison } from "./comparison.js";

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

const COLOURS = ["var(--k1)", "var(--k2)", "var(--k3)", "var(--k4)", "var(--k5)", "var(--k6)"];

/** @param {string | null} oracle label accuracy is compared by this one only, because oracles grade differently */
const figuresFor = (oracle) => [
  {
    name: "held_out",
    title: "Held-out accuracy",
    about: "pass@1 of each Solver on questions that are not used in training.",
    share: true,
  },
  {
    name: "test_time",
    title: "Test-time accuracy",
    about: "pass@1 of each Solver on the questions that it trains on.",
    share: true,
  },
  {
    name: "label_accuracy",
    over: "kept",
    oracle,
    title: oracle ? `Label accuracy (kept), by ${humanise(oracle)}` : "Label accuracy (kept)",
    about:
      "Over the kept questions. Oracles grade differently, so all runs are compared by the same oracle. Hollow points are estimates from p̂.",
    share: true,
  },
  {
    name: "training_label_accuracy",
    title: "Label accuracy in training",
    about: "The share of right labels among those that the Solver's method made in training.",
    share: true,
  },
  {
    name: "positive_labels",
    title: "Positive labels",
    about: "The prompts of a training step that the Solver's method gave a label, at the end of its training.",
    share: false,
  },
  {
    name: "negative_labels",
    title: "Negative labels",
    about: "The answers of a training step that the Solver's method took for wrong, at the end of its training.",
    share: false,
  },
  { name: "kept_share", title: "Kept share", about: "The share of the candidates that were kept.", share: true },
  {
    name: "policy_entropy",
    title: "Policy entropy",
    about: "In nats per token, at the end of the Solver's training.",
    share: false,
  },
];

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

/** @param {string[]} names @param {string | null} oracle */
function compareUrl(names, oracle) {
  const query = new URLSearchParams(names.map((name) => ["run", name]));
  if (oracle) query.set("oracle", oracle);
  return `/compare?${query}`;
}

/** @param {{ query: URLSearchParams }} props */
export function ComparePage({ query }) {
  const names = query.getAll("run").slice(0, COLOURS.length);
  const oracle = query.get("oracle");
  const experiment = query.get("experiment");
  const { data: experiments } = useResponse("/experiments", {});
  const { data: page, error: pageError } = useResponse("/runs", { limit: 100 });
  const { data: details, error: detailsError } = useResponses(names.map((run) => ["/runs/{run}", { run }]));
  const { data: series, error: seriesError } = useResponses(names.map((run) => ["/runs/{run}/series", { run }]));
  /** @type {ComparedRun[] | null} */
  const runs =
    details &&
    series &&
    names.map((name, i) => ({ name, colour: COLOURS[i], detail: details[i], seriesPoints: series[i] }));
  /** @param {string} name */
  const toggle = (name) => {
    const otherNames = names.filter((other) => other !== name);
    const newNames = names.includes(name) ? otherNames : [...names, name].slice(-COLOURS.length);
    navigate(compareUrl(newNames, oracle), { replace: true });
  };
  /** @param {string} newOracle */
  const setOracle = (newOracle) => navigate(compareUrl(names, newOracle), { replace: true });
  const comparison = html`<${Loading} data=${runs} error=${detailsError ?? seriesError}>${runs && html`<${Comparison} runs=${runs} oracle=${oracle} setOracle=${setOracle} />`}</${Loading}>`;
  return html`<${Heading} title="Compare runs">The same figures of up to ${COLOURS.length} runs. Bands are 95% intervals.</${Heading}>
    <${Loading} data=${page} error=${pageError}>
      <fieldset class="chips"><legend class="sr">Runs</legend>
        ${page?.items.filter(isStored).map(({ name }) => html`<${RunToggle} key=${name} name=${name} colour=${COLOURS[names.indexOf(name)]} toggle=${toggle} />`)}
      </fieldset>
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

/** @param {{ runs: ComparedRun[], oracle: string | null, setOracle: (oracle: string) => void }} props */
function Comparison({ runs, oracle: oracleInAddress, setOracle }) {
  const usedOracles = oraclesOfAll(runs);
  // The address may name an oracle that has graded none of these runs, for example after one of them was deselected.
  const isExtra = oracleInAddress && !usedOracles.includes(oracleInAddress);
  const oracles = isExtra ? [oracleInAddress, ...usedOracles] : usedOracles;
  const oracle = oracleInAddress ?? oracles[0] ?? null;
  const figures = figuresFor(oracle).filter(
    ({ name }) =>
      !OPTIONAL_FIGURES.includes(name) || runs.some(({ seriesPoints }) => seriesNamed(seriesPoints, name).length),
  );
  const options = oracles.map((name) => html`<option key=${name} value=${name}>${humanise(name)}</option>`);
  const form = html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
    <label>Label accuracy by <select value=${oracle} onChange=${(event) => setOracle(event.target.value)}>${options}</select></label>
    <${MissingAudits} runs=${runs} oracle=${oracle} />
  </form>`;
  return html`
    ${oracle && form}
    <div class="panels">
      ${isComparable(runs) && html`<${ArmComparison} names=${runs.map(({ name }) => name)} colours=${COLOURS} />`}
      ${figures.map((figure) => html`<${FigurePanel} key=${figure.name} figure=${figure} runs=${runs} />`)}
      <${LatestFigures} runs=${runs} figures=${figures.slice(0, -1)} />
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
  const chart = html`<${IterationChart} lines=${lines} share=${share} label=${title} /><${Legend} items=${lines.map(({ name, colour }) => [name, colour])} />`;
  return html`<${Panel} title=${title} about=${about} table=${table}>
    ${lines.length ? chart : html`<${Empty}>None of these runs has this figure.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ runs: ComparedRun[], figures: Figure[] }} props */
function LatestFigures({ runs, figures }) {
  return html`<${Panel} title="Latest figures" wide>
    <div class="scroll" tabindex="0" role="region" aria-label="Latest figures"><table>
      <caption class="sr">The latest figures of each run</caption>
      <thead><tr><th scope="col">run</th><th scope="col">method</th><th scope="col">state</th>${figures.map(({ name, title }) => html`<th key=${name} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${runs.map((run) => html`<${RunRow} key=${run.name} run=${run} figures=${figures} />`)}</tbody>
    </table></div>
  </${Panel}>`;
}

/** @param {{ run: ComparedRun, figures: Figure[] }} props */
function RunRow({ run: { name, detail, seriesPoints }, figures }) {
  return html`<tr>
    <th scope="row"><a href=${runUrl(name)}>${name}</a></th><td>${configOf(detail).solver.reward.type}</td><td><${Status} status=${detail.state} /></td>
    ${figures.map((figure) => html`<td key=${figure.name}><${LatestFigure} seriesPoints=${seriesPoints} figure=${figure} /></td>`)}
  </tr>`;
}

/** @param {{ seriesPoints: SeriesPoint[], figure: Figure }} props */
function LatestFigure({ seriesPoints, figure }) {
  const series = seriesOf(seriesPoints, figure);
  if (!series) {
    return html`<span class="none">${figure.oracle ? `not audited by ${humanise(figure.oracle)}` : "–"}</span>`;
  }
  return html`<${Share} estimate=${latestPoint(series)} />${series.oracle && html` <small>· by ${humanise(series.oracle)}</small>`}`;
}
