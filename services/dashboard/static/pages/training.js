// The page of one training: the metrics of its steps, and the rollouts that are stored of them, the best or the worst
// first, each with its text.
import { html, useState } from "/static/preact.js";
import { useResponse, useResponses } from "../api.js";
import { humanise, number } from "../format.js";
import { Answer, Typeset } from "../math.js";
import { PAGE_SIZE } from "../neighbours.js";
import { configOf, Empty, ErrorMessage, Heading, Loading, Panel, Table } from "../parts.js";
import { checkpointUrl, navigate, runUrl, trainingUrl } from "../router.js";
import { StepChart } from "../step_chart.js";
import { filteredUrl } from "./questions.js";
import { roleInTraining, StepCurves, TRAINING_POLL_MS } from "./step_curves.js";

/** @typedef {Schemas["TrainingRollout"]} TrainingRollout */
/** @typedef {Schemas["TrainingStep"]} TrainingStep */
/** @typedef {"challenger" | "solver"} Role */
/** @typedef {{ run: string, role: Role, iteration: string }} Training */

/** @type {[name: string, label: string][]} */
const SORTS = [
  ["-reward", "reward, highest first"],
  ["reward", "reward, lowest first"],
  ["-advantage", "advantage, highest first"],
  ["advantage", "advantage, lowest first"],
  ["-tokens", "tokens, most first"],
  ["tokens", "tokens, fewest first"],
  ["-entropy", "entropy, highest first"],
  ["entropy", "entropy, lowest first"],
  ["step", "step and prompt"],
];
const [[DEFAULT_SORT]] = SORTS;
/** @type {Record<Role, string>} */
const NAMES = { challenger: "Challenger", solver: "Solver" };
const REWARD = "reward_mean";
const REWARDED_WRONG = "rewarded_wrong"; // the parameter of the API
const MAX_SHOWN = 160; // characters of a question in the table

/** @param {Training & { query: URLSearchParams }} props */
export function TrainingPage({ run, role, iteration, query }) {
  const training = { run, role, iteration };
  const [live, setLive] = useState(true);
  const { data, error } = useResponses(
    [
      ["/runs/{run}/training/{role}/{iteration}/steps", training],
      ["/runs/{run}/metrics", { run, iteration, role }],
      ["/runs/{run}", { run }],
    ],
    live ? TRAINING_POLL_MS : 0,
  );
  const isInTraining = data && roleInTraining(data[2]) === role && data[2].iteration === Number(iteration);
  if (data && isInTraining !== live) setLive(Boolean(isInTraining));
  const otherRole = role === "solver" ? "challenger" : "solver";
  const hasBothRoles = data && configOf(data[2]).kind === "co_evolve";
  const url = trainingUrl(training);
  const step = query.get("step");
  return html`
    <${Heading} breadcrumbs=${[["Runs", "/"], [run, runUrl(run)]]} title=${`Training of the ${NAMES[role]}, iteration ${iteration}`}
      aside=${data && step && html`<${StepLinks} url=${url} query=${query} step=${Number(step)} steps=${data[0]} />`}>
      <a href=${checkpointUrl(`${run}/${role}/${iteration}`)}>its checkpoint</a>${hasBothRoles && html` · <a href=${trainingUrl({ run, role: otherRole, iteration })}>the ${NAMES[otherRole]}'s training</a>`}
    </${Heading}>
    <${Loading} data=${data} error=${error}>${
      data &&
      html`
      <div class="panels">
        <${StepRewards} url=${url} metrics=${data[1].filter(({ name }) => name === REWARD)} />
        <${OtherMetrics} metrics=${data[1]} />
      </div>
      <${Rollouts} training=${training} url=${url} query=${query} steps=${data[0]} />`
    }</${Loading}>
  `;
}

/** @param {{ url: string, query: URLSearchParams, step: number, steps: TrainingStep[] }} props */
function StepLinks({ url, query, step, steps }) {
  const previous = steps.filter((other) => other.step < step).at(-1);
  const next = steps.find((other) => other.step > step);
  /** @param {TrainingStep} other */
  const urlOf = (other) => filteredUrl(url, query, { step: String(other.step) });
  return html`<nav class="steps" aria-label="Steps">
    ${previous && html`<a href=${urlOf(previous)} rel="prev">← step ${previous.step}</a>`}
    ${next && html`<a href=${urlOf(next)} rel="next">step ${next.step} →</a>`}
  </nav>`;
}

/** @param {{ url: string, metrics: Schemas["TrainMetric"][] }} props */
function StepRewards({ url, metrics }) {
  const points = metrics.filter((metric) => metric.value !== null);
  return html`<${Panel} title="Reward by step" wide about="The mean reward over all rollouts of a step. A click on a step lists its rollouts below."
    table=${{ head: ["step", "reward"], rows: points.map(({ step, value }) => [step, number(value, 4)]) }}>
    ${points.length ? html`<${StepChart} points=${points} hrefOf=${({ step }) => `${url}?step=${step}`} label="Reward by step" />` : html`<${Empty}>No step of this training has ended yet.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ metrics: Schemas["TrainMetric"][] }} props */
function OtherMetrics({ metrics }) {
  if (metrics.length === 0) return null;
  return html`<${Panel} title="Other metrics by step" wide><${StepCurves} metrics=${metrics} without=${REWARD} /></${Panel}>`;
}

/** @param {{ training: Training, url: string, query: URLSearchParams, steps: TrainingStep[] }} props */
function Rollouts({ training, url, query, steps }) {
  const [step, question, rewarded_wrong, after] = ["step", "question", REWARDED_WRONG, "after"].map((name) =>
    query.get(name),
  );
  const sort = query.get("sort") ?? DEFAULT_SORT;
  const parameters = { ...training, step, question, rewarded_wrong, after, sort, limit: PAGE_SIZE };
  const { data, error } = useResponse(
    "/runs/{run}/training/{role}/{iteration}/rollouts",
    /** @type {GetParameters<"/runs/{run}/training/{role}/{iteration}/rollouts">} */ (
      /** @type {unknown} */ (parameters)
    ),
  );
  const about = `A sample of the prompts of each step, with all rollouts of a prompt. A run stores 8 prompts of each step.`;
  return html`<section class="panel wide" id="rollouts">
    <h2>Rollouts</h2>
    <p class="about">${about} <${StepSummary} step=${steps.find((other) => String(other.step) === step)} /></p>
    <${Filters} role=${training.role} url=${url} query=${query} sort=${sort} steps=${steps} />
    <${Loading} data=${data} error=${error}>
      ${data && (data.items.length ? html`<${RolloutTable} training=${training} url=${url} query=${query} rollouts=${data.items} />` : html`<${Empty}>${rewarded_wrong && !data.graded ? "Not graded: no oracle knows these answers." : "No rollout is stored for this choice."}</${Empty}>`)}
      <nav class="pager" aria-label="Pages of rollouts">
        ${after && html`<a href=${filteredUrl(url, query, {})}>First page</a>`}
        ${data?.next && html`<a href=${filteredUrl(url, query, { after: data.next })} rel="next">Next page</a>`}
      </nav>
    </${Loading}>
  </section>`;
}

/** @param {{ step: TrainingStep | undefined }} props */
function StepSummary({ step }) {
  if (step === undefined) return null;
  const { prompts, rollouts, trained_on, reward_mean, reward_min, reward_max } = step;
  return html`Of step ${step.step}: ${number(rollouts)} rollouts of ${number(prompts)} ${prompts === 1 ? "prompt" : "prompts"}, of which ${number(trained_on)} were trained on; reward ${number(reward_mean)} on average, from ${number(reward_min)} to ${number(reward_max)}.`;
}

/** @param {{ role: Role, url: string, query: URLSearchParams, sort: string, steps: TrainingStep[] }} props */
function Filters({ role, url, query, sort, steps }) {
  /** @param {Record<string, string | null>} changes */
  const setFilters = (changes) => navigate(filteredUrl(url, query, changes), { replace: true });
  const question = query.get("question");
  return html`<form class="filters" role="search" aria-label="Rollouts" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label>Step <select value=${query.get("step") ?? ""} onChange=${(event) => setFilters({ step: event.target.value })}>
      <option value="">all</option>${steps.map((other) => html`<option key=${other.step} value=${other.step}>${other.step}</option>`)}
    </select></label>
    <label>Sort <select value=${sort} onChange=${(event) => setFilters({ sort: event.target.value === DEFAULT_SORT ? null : event.target.value })}>
      ${SORTS.map(([value, label]) => html`<option key=${value} value=${value}>${label}</option>`)}
    </select></label>
    ${
      role === "solver" &&
      html`<label class="check"><input type="checkbox" checked=${query.has(REWARDED_WRONG)} onChange=${(event) => setFilters({ [REWARDED_WRONG]: event.target.checked ? "true" : null })} /> Only rewarded although wrong, where an oracle or the prompt's own answer says so</label>`
    }
    ${question && html`<a class="chip" href=${filteredUrl(url, query, { question: null })}>question <bdi>${question}</bdi> ×</a>`}
  </form>`;
}

/** @param {{ training: Training, url: string, query: URLSearchParams, rollouts: TrainingRollout[] }} props */
function RolloutTable({ training, url, query, rollouts }) {
  const parts = [...new Set(rollouts.flatMap((rollout) => Object.keys(rollout.parts)))];
  const answer = training.role === "solver" ? ["answer"] : [];
  const [position, text] = [html`step <small>prompt.rollout</small>`, html`<span class="sr">text</span>`];
  const figures = ["reward", ...parts.map(humanise), "advantage", "tokens", "entropy", "end"];
  const head = [position, "question", ...answer, ...figures, text];
  return html`<${Table} label="Rollouts" class="rollouts stacked" head=${head}>
    ${rollouts.map((rollout) => html`<${RolloutRows} key=${`${rollout.step}/${rollout.prompt}/${rollout.rollout}`} training=${training} url=${url} query=${query} rollout=${rollout} parts=${parts} />`)}
  </${Table}>`;
}

/**
 * A rollout in one row, and its text in a second one if it is open.
 *
 * @param {{ training: Training, url: string, query: URLSearchParams, rollout: TrainingRollout, parts: string[] }} props
 */
function RolloutRows({ training, url, query, rollout, parts }) {
  const [isOpen, setOpen] = useState(false);
  const { step, prompt, rollout: position, reward, advantage, tokens, mean_entropy, finish_reason } = rollout;
  const name = `step ${step}, prompt ${prompt}, rollout ${position}`;
  return html`<tbody>
    <tr class=${advantage === null ? "untrained" : ""}>
      <td data-label="step"><span title=${name}>${step}<small> ${prompt}.${position}</small></span></td>
      <td class="text"><${Question} text=${rollout.question} /></td>
      ${training.role === "solver" && html`<td data-label="answer"><${AgreeingAnswer} rollout=${rollout} /></td>`}
      <td data-label="reward"><b>${number(reward)}</b></td>
      ${parts.map((part) => html`<td key=${part} data-label=${humanise(part)}>${number(rollout.parts[part])}</td>`)}
      <td data-label="advantage">${advantage === null ? html`<span class="none">not trained on</span>` : number(advantage)}</td>
      <td data-label="tokens">${number(tokens)}</td>
      <td data-label="entropy">${number(mean_entropy)}</td>
      <td data-label="end">${finish_reason === "length" ? "cut off" : "stop"}</td>
      <td><button type="button" class="quiet" aria-expanded=${isOpen} aria-label=${`Read ${name}`} onClick=${() => setOpen(!isOpen)}>${isOpen ? "Close" : "Read"}</button></td>
    </tr>
    ${isOpen && html`<tr><td colspan=${parts.length + 9}><${RolloutText} training=${training} url=${url} query=${query} rollout=${rollout} /></td></tr>`}
  </tbody>`;
}

/** An answer, and whether it agrees with the label. @param {{ rollout: TrainingRollout }} props */
function AgreeingAnswer({ rollout: { answer, agrees, label } }) {
  const verdict = agrees === null ? (label === null ? "no label" : "undecided") : agrees ? "agrees" : "differs";
  return html`<${Answer} text=${answer} /> <small class=${`said ${agrees ? "s-right" : "s-unknown"}`}>${verdict}</small>`;
}

/** @param {{ text: string | null }} props */
function Question({ text }) {
  if (text === null) return html`<span class="none">malformed</span>`;
  return html`<${Typeset} text=${text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)}…` : text} />`;
}

/** @param {{ training: Training, url: string, query: URLSearchParams, rollout: TrainingRollout }} props */
function RolloutText({ training, url, query, rollout: { step, prompt, rollout, question, question_id, label } }) {
  const path = "/runs/{run}/training/{role}/{iteration}/rollouts/{step}/{prompt}/{rollout}";
  const { data, error } = useResponse(path, { ...training, step, prompt, rollout });
  return html`<div class="read">
    ${
      question_id !== null &&
      html`<p class="prose asked"><${Question} text=${question} /></p>
      <p class="meta">label <b>${label === null ? "none" : html`<${Answer} text=${label} />`}</b> · <a href=${filteredUrl(url, query, { step: null, question: question_id, sort: "step" })}>this question at all steps</a></p>`
    }
    <${ErrorMessage} error=${error} />
    ${data && (data.text === null ? html`<p class="none">The text of this rollout is not stored. The setting <code>rollout_text</code> decides which texts a run stores.</p>` : html`<p class="prose"><${Typeset} text=${data.text} /></p>`)}
  </div>`;
}
