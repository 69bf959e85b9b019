// The download of an iteration's questions, or of the votes on them: which rows, how many there are, and the formats.
import { html, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { number } from "../format.js";
import { DownloadButton, ErrorMessage, isLive } from "../parts.js";

const POLL_MS = 30_000;
const FORMATS = [
  ["jsonl", "JSONL"],
  ["csv", "CSV"],
  ["parquet", "Parquet"],
  ["huggingface", "Hugging Face"],
];
/** @type {[value: string, label: string][]} */
const CONTENTS = [
  ["questions", "questions and labels"],
  ["votes", "votes on them"],
  ["texts", "votes with their texts"],
];

/**
 * @param {{
 *   run: Schemas["RunWithConfig"], t: number, filters: import("./questions.js").QuestionFilters,
 * }} props `filters` are those of the list in view
 */
export function Exports({ run, t, filters }) {
  const [content, setContent] = useState("questions");
  const [choice, setChoice] = useState("view");
  const [span, setSpan] = useState("one");
  const { sort: _sort, after: _after, ...inView } = filters;
  const isFiltered = Object.keys(inView).length > 0;
  /** @type {[value: string, label: string][]} */
  const choices = [
    ["view", isFiltered ? "matching the filters above" : "all"],
    ["kept", "kept"],
  ];
  if (isFiltered) choices.push(["all", "all, without the filters"]);
  const selected = { view: inView, kept: { verdict: ["kept"] } }[choice] ?? {};
  const selection = { run: run.name, iterations: span === "all" ? "all" : String(t), ...selected };
  const { data, error } = useResponse("/runs/{run}/export/rows", selection, isLive(run) ? POLL_MS : 0);
  const what = content === "questions" ? "questions" : "votes";
  const parameters = { ...selection, what, texts: content === "texts" || null };
  return html`<div class="exports" role="group" aria-label="Download">
    <span class="selection">
      <label>Download <${Choice} value=${content} options=${CONTENTS} onChoose=${setContent} /></label>
      <label>Questions <${Choice} value=${choice} options=${choices} onChoose=${setChoice} /></label>
      <label>Iterations <${Choice} value=${span} options=${[["one", `only ${t}`], ["all", "all that are labelled"]]} onChoose=${setSpan} /></label>
    </span>
    <${ErrorMessage} error=${error} />
    ${data && (data.iterations.length ? html`<span><b>${number(data[what])}</b> rows:</span> ${FORMATS.map(([format, label]) => html`<${DownloadButton} key=${format} path="/runs/{run}/export" parameters=${{ ...parameters, format }}>${label}</${DownloadButton}>`)}` : html`<span>They can be downloaded once all questions are labelled.</span>`)}
  </div>`;
}

/** @param {{ value: string, options: [value: string, label: string][], onChoose: (value: string) => void }} props */
const Choice = ({ value, options, onChoose }) =>
  html`<select value=${value} onChange=${(event) => onChoose(event.target.value)}>
    ${options.map(([option, label]) => html`<option key=${option} value=${option}>${label}</option>`)}
  </select>`;
