// The list of evaluations: what models were asked, by `coevo evaluate` or by a run.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { duration, timeAgo } from "../format.js";
import { Empty, Heading, Loading, Share, Table } from "../parts.js";
import { runUrl } from "../router.js";

/** @typedef {Schemas["ListedEvaluation"]} ListedEvaluation */

const POLL_MS = 10_000;

/** @param {string} id */
export const evaluationUrl = (id) => `/evaluations/${id}`;

/** The name of a benchmark; of one that is a file, the file's name. @param {string} benchmark */
export const benchmarkName = (benchmark) =>
  /\.(jsonl|parquet|csv|toml)$/.test(benchmark) ? benchmark.split("/").at(-1) : benchmark;

/** @param {{ query: URLSearchParams }} props */
export function EvaluationsPage({ query }) {
  const run = query.get("run");
  const { data, error } = useResponse("/evaluations", { run }, POLL_MS);
  const runs = run ? [["Runs", "/"]].concat([[run, runUrl(run)]]) : [];
  const ofRun = html`Of the run's checkpoints, by the run. <a href="/evaluations">Those made with coevo evaluate</a>`;
  const ofAll = html`Made with <code>coevo evaluate</code>. Those by a run are linked from its checkpoints.`;
  return html`
    <${Heading} breadcrumbs=${runs} title="Evaluations">
      ${run ? ofRun : ofAll}
    </${Heading}>
    <${Loading} data=${data} error=${error}>
      ${data?.length === 0 && html`<${Empty}>No evaluations yet. Make one with <code>coevo evaluate RUN:best micro</code>.</${Empty}>`}
      ${data && data.length > 0 && html`<${EvaluationTable} evaluations=${data} />`}
    </${Loading}>`;
}

/** @param {{ evaluations: ListedEvaluation[] }} props */
function EvaluationTable({ evaluations }) {
  const head = ["benchmark", "model", "pass@1", "greedy", "majority", "begun", "time spent", "state"];
  return html`<div class="panel wide"><${Table} label="Evaluations" head=${head}>
    <tbody>${evaluations.map(
      ({ id, benchmark, model, pass_at_1, greedy, majority, created_at, seconds, finished_at }) => html`<tr key=${id}>
        <td><a href=${evaluationUrl(id)} title=${benchmark}>${benchmarkName(benchmark)}</a></td>
        <td title=${model}>${model}</td>
        ${[pass_at_1, greedy, majority].map((estimate) => html`<td><${Share} estimate=${estimate} /></td>`)}
        <td>${timeAgo(created_at)}</td>
        <td>${duration(seconds)}</td>
        <td>${finished_at ? "finished" : "not finished"}</td>
      </tr>`,
    )}</tbody>
  </${Table}></div>`;
}
