// The iterations of a run: a row for each with its figures, and links to its page and to its trainings.
import { html } from "/static/preact.js";
import { unlessReport } from "../api.js";
import { duration, humanise, number } from "../format.js";
import { Panel, Share, Table } from "../parts.js";
import { runUrl, trainingUrl } from "../router.js";
import { benchmarkAccuracy, labelAccuracy } from "../series.js";

/** @typedef {Schemas["IterationSummary"]} IterationSummary */
/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */

/** @type {Record<string, string>} a stage that trains a role, and the role */
const TRAINED_BY = { train_challenger: "challenger", train_solver: "solver" };

/**
 * @param {{
 *   run: string,
 *   url: string,
 *   config: import("../parts.js").RunConfig,
 *   iterations: IterationSummary[],
 *   seriesPoints: SeriesPoint[],
 * }} props
 */
export function Iterations({ run, url, config, iterations, seriesPoints }) {
  if (iterations.length === 0) return null;
  const label = labelAccuracy(seriesPoints);
  const benchmark = benchmarkAccuracy(seriesPoints, config);
  const links = unlessReport(
    "An iteration's page has its questions with their votes; a training's page has its curves and what was rewarded. ",
  );
  const head = [
    "iteration",
    "questions",
    "kept",
    html`label accuracy${label && html` <small>${label.note}</small>`}`,
    benchmark.title.toLowerCase(),
    "trainings",
    "time",
  ];
  const rows = iterations.map((summary) => {
    const { iteration, questions, kept, seconds, stages, now, inherited_from: maker } = summary;
    /** @param {SeriesPoint[] | undefined} points */
    const pointOf = (points) => points?.find((point) => point.iteration === iteration);
    const roles = stages.flatMap(({ stage }) => TRAINED_BY[stage] ?? []);
    return html`<tr key=${iteration}>
      <th scope="row"><a href=${`${url}/${iteration}`}>Iteration ${iteration}</a>${now && html` <small>${humanise(now)}</small>`}${maker && html` <small>of <a href=${runUrl(maker)}>${maker}</a></small>`}</th>
      <td data-label="questions">${number(questions)}</td>
      <td data-label="kept"><${Share} estimate=${kept} /></td>
      <td data-label="label accuracy"><${Share} estimate=${pointOf(label?.points)} /></td>
      <td data-label=${benchmark.title.toLowerCase()}><${Share} estimate=${pointOf(benchmark.points)} /></td>
      <td data-label="trainings">${roles.length ? roles.map((role, i) => html`${i > 0 && " · "}<a key=${role} href=${trainingUrl({ run, role, iteration })}>${humanise(role)}</a>`) : "–"}</td>
      <td data-label="time">${duration(seconds)}</td>
    </tr>`;
  });
  return html`<${Panel} title="Iterations" wide id="iterations" about=${`${links}Iteration 0 is the base model.`}>
    <${Table} label="Iterations" class="stacked" tall head=${head}>
      <tbody>${rows.reverse()}</tbody>
    </${Table}>
  </${Panel}>`;
}
