// One checkpoint: where it comes from, what was trained from it, and its files.
import { html } from "/static/preact.js";
import { useAnswers } from "../api.js";
import { number, percent } from "../format.js";
import { Empty, Heading, Loading, Panel, Share } from "../parts.js";

const href = ({ id }) => {
  const [run, role, t] = id.split("/");
  return `/runs/${encodeURIComponent(run)}/checkpoints/${role}/${t}`;
};

export function CheckpointPage({ run, role, t }) {
  const api = `/runs/${encodeURIComponent(run)}`;
  const { data, error } = useAnswers([[`${api}/checkpoints/${role}/${t}`], [`${api}/evaluations`]]);
  const [found, evaluations] = data ?? [];
  const own = evaluations?.filter((one) => one.checkpoint === found.checkpoint.id && !one.benchmark.startsWith("questions/")) ?? [];
  return html`<${Heading} trail=${[["Runs", "/"], [run, `/runs/${encodeURIComponent(run)}`]]} title=${`${run}/${role}/${t}`}>
      ${found && html`step ${found.checkpoint.step} · sha256 <code>${found.checkpoint.sha256.slice(0, 16)}…</code>`}
    </${Heading}>
    <${Loading} data=${data} error=${error}>
      ${found && html`<div class="panels">
        <${Panel} title="Lineage" about="From the base model down.">
          <ol class="lineage">
            ${[...found.ancestors].reverse().map((one) => html`<li key=${one.id}><a href=${href(one)}>${one.id}</a></li>`)}
            <li><b>${found.checkpoint.id}</b></li>
            ${found.children.map((one) => html`<li key=${one.id}>then <a href=${href(one)}>${one.id}</a></li>`)}
          </ol>
        </${Panel}>
        <${Panel} title="Evaluations">
          ${own.length === 0 && html`<${Empty}>It was not evaluated.</${Empty}>`}
          <dl class="pairs">${own.map((one) => html`<dt key=${one.benchmark}>${one.benchmark}, pass@1</dt><dd><${Share} estimate=${one.pass_at_1} /></dd>
            <dt>greedy</dt><dd><${Share} estimate=${one.greedy} /></dd><dt>majority of ${one.samples}</dt><dd><${Share} estimate=${one.majority} /></dd>`)}</dl>
        </${Panel}>
        <${Panel} title="Files" wide>
          <div class="scroll" tabindex="0" role="region" aria-label="Files"><table><thead><tr><th scope="col">file</th><th scope="col">sha256</th></tr></thead>
            <tbody>${Object.entries(found.manifest).map(([name, sha]) => html`<tr key=${name}><td>${name}</td><td><code>${sha}</code></td></tr>`)}</tbody></table></div>
          <p class="meta">in <code>${found.checkpoint.path}</code></p>
        </${Panel}>
      </div>`}
    </${Loading}>`;
}
