// The metrics of a training's steps as small charts, and those of the training that runs now, which grow as it goes on.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { humanise } from "../format.js";
import { Empty, Fold, Panel } from "../parts.js";
import { trainingUrl } from "../router.js";
import { StepChart } from "../step_chart.js";

/** @typedef {Schemas["TrainMetric"]} TrainMetric */
/** @typedef {Schemas["RunWithConfig"]} RunWithConfig */

export const TRAINING_POLL_MS = 4_000;
/** @type {Record<string, string>} a stage that trains, and the role of its metrics */
const ROLES = { train_challenger: "challenger", train_solver: "solver", train_labelled: "solver" };
const LABELLED = "labelled_"; // begins the names of the metrics of a training on labelled data
/** @type {[name: string, title: string, unit: string, isShare: boolean][]} */
const CURVES = [
  ["reward_mean", "Reward", "", false],
  ["entropy", "Policy entropy", "nats per token", false],
  ["kl", "KL to the reference", "nats per token", false],
  ["grad_norm", "Norm of the gradient", "", false],
  ["response_length", "Tokens per rollout", "", false],
  ["unparsed_share", "Rollouts without an answer", "", true],
  ["truncated_share", "Rollouts that were cut off", "", true],
  ["zero_advantage_share", "Prompts whose rollouts all have the same reward", "", true],
];
const NOT_DRAWN = ["step", `${LABELLED}step`];

/** The role that the run trains now, or null. @param {RunWithConfig} run */
export const roleInTraining = ({ active, stage }) => (active && stage !== null && ROLES[stage]) || null;

/**
 * A chart for each metric; those without a title of their own are behind a fold.
 *
 * @param {{ metrics: TrainMetric[], without?: string }} props of one training; `without` is a metric that is drawn
 *   elsewhere
 */
export function StepCurves({ metrics, without = "" }) {
  const names = [...new Set(metrics.map(({ name }) => name))].filter((name) => ![...NOT_DRAWN, without].includes(name));
  const titled = ["", LABELLED].flatMap((prefix) =>
    CURVES.map(([name, title, unit, isShare]) => ({
      name: prefix + name,
      title: prefix ? `${title}, on labelled data` : title,
      unit,
      isShare,
    })),
  );
  const curves = titled.filter(({ name }) => names.includes(name));
  const others = names
    .filter((name) => !titled.some((curve) => curve.name === name))
    .map((name) => ({ name, title: humanise(name), unit: "", isShare: name.endsWith("_share") }));
  /** @param {typeof curves} drawn */
  const charts = (drawn) => html`<div class="small-multiples">
    ${drawn.map(
      ({ name, title, unit, isShare }) => html`<div key=${name}>
        <h3>${title}${unit && html` <small>${unit}</small>`}</h3>
        <${StepChart} points=${metrics.filter((metric) => metric.name === name && metric.value !== null)} share=${isShare} height=${150} label=${`${title} by step`} />
      </div>`,
    )}
  </div>`;
  return html`${charts(curves)}
    <${Fold} title="More metrics" count=${others.length}>${charts(others)}</${Fold}>`;
}

/** The curves of the training that the run does now; nothing if it does none. @param {{ run: RunWithConfig }} props */
export function TrainingNow({ run }) {
  const { name, iteration, stage } = run;
  const role = roleInTraining(run);
  const { data } = useResponse(
    role === null ? null : "/runs/{run}/metrics",
    /** @type {GetParameters<"/runs/{run}/metrics">} */ ({ run: name, iteration, role }),
    TRAINING_POLL_MS,
  );
  if (role === null || iteration === null) return null;
  const isLabelled = stage === "train_labelled";
  const metrics = (data ?? []).filter((metric) => metric.name.startsWith(LABELLED) === isLabelled);
  const title = `Training now: ${humanise(String(stage))} ${iteration}`;
  return html`<${Panel} title=${title} wide id="training-now" about="The metrics of the steps that have ended.">
    ${metrics.length ? html`<${StepCurves} metrics=${metrics} />` : html`<${Empty}>No step has ended yet.</${Empty}>`}
    <p class="meta"><a href=${trainingUrl({ run: name, role, iteration })}>The page of this training</a></p>
  </${Panel}>`;
}
