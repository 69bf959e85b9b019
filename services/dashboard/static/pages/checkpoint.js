// The page of one checkpoint: the checkpoints it was trained from, those trained from it, its evaluations and its
// files.
import { html } from "/static/preact.js";
import { useResponses } from "../api.js";
import { Empty, Heading, Loading, Panel, Share, Table } from "../parts.js";
import { checkpointUrl, runUrl } from "../router.js";

/** @param {{ run: string, role: string, iteration: string }} props */
export function CheckpointPage({ run, role, iteration }) {
  const { data, error } = useResponses([
    ["/runs/{run}/checkpoints/{role}/{iteration}", { run, role, iteration }],
    ["/runs/{run}/evaluations", { run }],
  ]);
  const checkpoint = data?.[0].checkpoint;
  return html`<${Heading} breadcrumbs=${[["Runs", "/"], [run, runUrl(run)]]} title=${`${run}/${role}/${iteration}`}>
      ${checkpoint && html`step ${checkpoint.step} · sha256 <code>${checkpoint.sha256.slice(0, 16)}…</code>`}
    </${Heading}>
    <${Loading} data=${data} error=${error}>${data && html`<${Checkpoint} detail=${data[0]} evaluations=${data[1]} />`}</${Loading}>`;
}

/** @param {{ detail: Schemas["CheckpointDetail"], evaluations: Schemas["Evaluation"][] }} props */
function Checkpoint({ detail, evaluations }) {
  const { checkpoint, ancestors, children, manifest } = detail;
  const benchmarks = evaluations.filter(
    (evaluation) => evaluation.checkpoint === checkpoint.id && !evaluation.benchmark.startsWith("questions/"),
  );
  return html`<div class="panels">
    <${Panel} title="Lineage" about="From the base model to this checkpoint and the checkpoints that were trained from it.">
      <ol class="lineage">
        ${[...ancestors].reverse().map(({ id }) => html`<li key=${id}><a href=${checkpointUrl(id)}>${id}</a></li>`)}
        <li><b>${checkpoint.id}</b></li>
        ${children.map(({ id }) => html`<li key=${id}>then <a href=${checkpointUrl(id)}>${id}</a></li>`)}
      </ol>
    </${Panel}>
    <${Panel} title="Evaluations">
      ${benchmarks.length === 0 && html`<${Empty}>Not evaluated.</${Empty}>`}
      <dl class="pairs">${benchmarks.map((evaluation) => html`<${Evaluation} key=${evaluation.benchmark} evaluation=${evaluation} />`)}</dl>
      <p class="meta"><a href=${`/evaluations?run=${encodeURIComponent(checkpoint.run)}`}>All evaluations of the run, with every answer</a></p>
    </${Panel}>
    <${Panel} title="Files" wide>
      <${Table} label="Files" head=${["file", "sha256"]}>
        <tbody>${Object.entries(manifest).map(([name, sha256]) => html`<tr key=${name}><td>${name}</td><td><code>${sha256}</code></td></tr>`)}</tbody>
      </${Table}>
      <p class="meta">${checkpoint.files_removed ? "Its files were removed, as the run's setting checkpoints.keep says. They were in " : "in "}<code>${checkpoint.path}</code></p>
    </${Panel}>
  </div>`;
}

/** @param {{ evaluation: Schemas["Evaluation"] }} props */
function Evaluation({ evaluation: { benchmark, samples, pass_at_1, greedy, majority } }) {
  return html`<dt>${benchmark}, pass@1</dt><dd><${Share} estimate=${pass_at_1} /></dd>
    <dt>greedy</dt><dd><${Share} estimate=${greedy} /></dd>
    <dt>majority of ${samples}</dt><dd><${Share} estimate=${majority} /></dd>`;
}
