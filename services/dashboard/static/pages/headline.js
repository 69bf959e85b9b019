// What a run has shown so far, in sentences: what the Solver learned, details of it, and what was decided.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";

/** Shows nothing while it is not known. @param {{ run: string, pollMs: number }} props */
export function Headline({ run, pollMs }) {
  const { data } = useResponse("/runs/{run}/headline", { run }, pollMs);
  if (!data) return null;
  const sentences = [...data.details, ...data.decisions];
  return html`<section class="panel headline" aria-label="What the Solver learned">
    <p class="sentence">${data.sentence}</p>
    ${sentences.length > 0 && html`<ul>${sentences.map((sentence) => html`<li key=${sentence}><bdi>${sentence}</bdi></li>`)}</ul>`}
  </section>`;
}
