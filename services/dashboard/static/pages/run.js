// The page of one run: its current stages, its figures by iteration, its audits, its alerts, and the controls to
// cancel, resume or answer it.
import { html, useState } from "/static/preact.js";
import { post, useResponse, useResponses } from "../api.js";
import { humanise, number, percent, timeAgo } from "../format.js";
import {
  ActionButton,
  configOf,
  ErrorMessage,
  FlowRun,
  Heading,
  isLive,
  Loading,
  notStarted,
  Panel,
  Status,
  Tile,
} from "../parts.js";
import { runUrl } from "../router.js";
import { benchmarkAccuracy, latestPoint, seriesNamed } from "../series.js";
import { AlertList } from "./alerts.js";
import { Audits, basisOfPoint } from "./audits.js";
import { Cost } from "./cost.js";
import {
  BenchmarkAccuracy,
  Difficulty,
  LabelAccuracy,
  Rewards,
  Signals,
  Stages,
  TrainingLabels,
  Verdicts,
} from "./figures.js";
import { Matrix } from "./matrix.js";

/** @typedef {Schemas["RunDetail"]} RunDetail */
/** @typedef {Schemas["IterationSummary"]} IterationSummary */
/** @typedef {Schemas["Stage"]} Stage */
/** @typedef {Schemas["Checkpoint"]} Checkpoint */
/** @typedef {Schemas["StepLabelFigures"]} StepLabelFigures */
/** @typedef {Schemas["TrainMetric"]} TrainMetric */
/** @typedef {Schemas["Decision"]["decision"]} Decision */
/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */
/** @typedef {import("../series.js").Series} Series */

const POLL_MS = 4_000;
const PREFECT_POLL_MS = 10_000;
const AUDITS_POLL_MS = 60_000; // the API computes them from all labels, which takes a while
/** @type {Decision[]} */
const DECISIONS = ["go on", "roll back", "stop"];

/** @param {{ run: string }} props */
export function RunPage({ run: name }) {
  const [live, setLive] = useState(true);
  const {
    data,
    error,
    refetch: refetchRun,
  } = useResponses(
    [
      ["/runs/{run}", { run: name }],
      ["/runs/{run}/iterations", { run: name }],
      ["/runs/{run}/series", { run: name }],
      ["/runs/{run}/stages", { run: name }],
      ["/runs/{run}/metrics", { run: name, name: "reward_mean" }],
      ["/runs/{run}/checkpoints", { run: name }],
      ["/runs/{run}/training-labels", { run: name }],
      ["/runs/{run}/evaluations", { run: name }],
      ["/alerts", { run: name, limit: 20 }],
    ],
    live ? POLL_MS : 0,
  );
  const { data: flowRuns, refetch: refetchFlowRuns } = useResponse("/flow-runs", { run: name }, PREFECT_POLL_MS);
  const refetch = () => {
    refetchRun();
    refetchFlowRuns();
  };
  const waitingFlowRuns = notStarted(flowRuns);
  const shouldPoll = !data || isLive(data[0]) || waitingFlowRuns.length > 0;
  if (shouldPoll !== live) setLive(shouldPoll);
  const flowRunTitle = data ? "Resume requested" : "Not in the store yet";
  const flowRunList = waitingFlowRuns.map(
    (flowRun) => html`<${FlowRun} key=${flowRun.flow_run} flowRun=${flowRun}><b>${flowRunTitle}</b></${FlowRun}>`,
  );
  if (data === null && error) {
    return html`<${Heading} breadcrumbs=${[["Runs", "/"]]} title=${name} />${flowRunList.length > 0 ? html`<section class="panel">${flowRunList}</section>` : html`<${ErrorMessage} error=${error} />`}`;
  }
  return html`<${Loading} data=${data} error=${error}>${data && html`<${Run} data=${data} refetch=${refetch} flowRunList=${flowRunList} />`}</${Loading}>`;
}

/**
 * @typedef {[
 *   run: RunDetail,
 *   iterations: IterationSummary[],
 *   seriesPoints: SeriesPoint[],
 *   stages: Stage[],
 *   rewards: TrainMetric[],
 *   checkpoints: Checkpoint[],
 *   trainingLabels: StepLabelFigures[],
 *   evaluations: Schemas["Evaluation"][],
 *   alerts: Schemas["AlertPage"],
 * ]} RunData
 * @param {{ data: RunData, refetch: () => void, flowRunList: Children[] }} props
 */
function Run({ data, refetch, flowRunList }) {
  const [run, iterations, seriesPoints, stages, rewards, checkpoints, trainingLabels, evaluations, alerts] = data;
  const { data: audits } = useResponse("/runs/{run}/audits", { run: run.name }, isLive(run) ? AUDITS_POLL_MS : 0);
  const url = runUrl(run.name);
  const config = configOf(run);
  const onBenchmark = evaluations.filter(({ benchmark }) => benchmark === config.evaluation.benchmark);
  const hasPseudoLabels = trainingLabels.length === 0 || seriesNamed(seriesPoints, "label_accuracy").length > 0;
  return html`
    <${Heading} breadcrumbs=${[["Runs", "/"]]} title=${run.name} aside=${html`<${Status} status=${run.status} /><${Actions} run=${run} refetch=${refetch} />`}>
      ${run.preset ?? "no preset"} · ${config.solver.reward.type} · ${config.shared && "one model in both roles · "}seed ${run.seed} · created ${timeAgo(run.created_at)} ·${" "}
      <a href=${`/compare?run=${encodeURIComponent(run.name)}`}>compare with other runs</a>
    </${Heading}>
    ${flowRunList.length > 0 && html`<section class="panel starts">${flowRunList}</section>`}
    <${CurrentStages} stages=${stages} iterations=${iterations} />
    <${Tiles} seriesPoints=${seriesPoints} audits=${audits} />
    <div class="panels">
      ${hasPseudoLabels && html`<${LabelAccuracy} url=${url} seriesPoints=${seriesPoints} run=${run.name} />`}
      <${Audits} audits=${audits} url=${url} />
      ${trainingLabels.length > 0 && html`<${TrainingLabels} steps=${trainingLabels} seriesPoints=${seriesPoints} />`}
      <${BenchmarkAccuracy} url=${url} seriesPoints=${seriesPoints} checkpoints=${checkpoints} evaluations=${onBenchmark} />
      ${config.kind !== "self_train" && html`<${Difficulty} url=${url} seriesPoints=${seriesPoints} />`}
      <${Verdicts} url=${url} iterations=${iterations} />
      <${Rewards} metrics=${rewards} />
      <${Matrix} run=${run.name} />
      <${Signals} seriesPoints=${seriesPoints} />
      <${Stages} stages=${stages} iterations=${iterations} url=${url} />
      <${Cost} run=${run.name} pollMs=${isLive(run) ? AUDITS_POLL_MS : 0} />
      <${Panel} title="Alerts" wide about="Alerts from the guard and the drift rules.">
        <${AlertList} alerts=${alerts.items} refetch=${refetch} empty="No alerts." />
      </${Panel}>
    </div>
  `;
}

/** @param {{ run: RunDetail, refetch: () => void }} props */
function Actions({ run, refetch }) {
  /** @param {"cancel" | "resume"} action */
  const trigger = (action) => async () => {
    await post(`/runs/{run}/${action}`, { run: run.name }, {});
    refetch();
  };
  /** @param {Decision} decision */
  const decide = (decision) => async () => {
    await post("/runs/{run}/decision", { run: run.name }, { decision });
    refetch();
  };
  if (run.status === "paused") {
    return html`<div class="actions">
      ${DECISIONS.map((decision) => html`<${ActionButton} key=${decision} action=${decide(decision)}>${decision}</${ActionButton}>`)}
    </div>`;
  }
  const canBeResumed = run.status !== "done" && run.status !== "stopped";
  const cancelButton = html`<${ActionButton} class="quiet" action=${trigger("cancel")}>Cancel</${ActionButton}>`;
  const resumeButton = html`<${ActionButton} action=${trigger("resume")}>Resume</${ActionButton}>`;
  return html`<div class="actions">${isLive(run) ? cancelButton : canBeResumed && resumeButton}</div>`;
}

/**
 * The stages that are running, those that were interrupted, and the last one that failed. A stage whose process died is
 * still "running" in the ledger, but it is not the current stage (`now`) of its iteration.
 *
 * @param {{ stages: Stage[], iterations: IterationSummary[] }} props
 */
function CurrentStages({ stages, iterations }) {
  const unfinished = stages.filter((stage) => stage.status === "running");
  const running = unfinished.filter(({ iteration, stage }) =>
    iterations.some((summary) => summary.iteration === iteration && summary.now === stage),
  );
  const interrupted = unfinished.filter((stage) => !running.includes(stage));
  const failed = stages.findLast((stage) => stage.status === "failed");
  return html`<div aria-live="polite">
    ${running.map((stage) => html`<${RunningStage} key=${stage.stage} stage=${stage} />`)}
    ${interrupted.map((stage) => html`<p key=${stage.stage} class="problem"><b>${nameOf(stage)} was interrupted:</b> no process is working on it. Resume the run to continue it.</p>`)}
    ${failed && html`<p class="problem"><b>${nameOf(failed)} failed:</b> <bdi>${failed.error}</bdi></p>`}
  </div>`;
}

/** @param {Stage} stage */
const nameOf = ({ stage, iteration }) => `${humanise(stage)} ${iteration}`;

/** @param {{ stage: Stage }} props */
function RunningStage({ stage }) {
  const { progress_done, progress_total, progress_note, started_at } = stage;
  const progress = html`<progress max=${progress_total} value=${progress_done} aria-label=${nameOf(stage)}></progress>
    <span>${number(progress_done)} of ${number(progress_total)} ${progress_note}</span>`;
  return html`<div class="now">
    <b>${nameOf(stage)}</b>
    ${progress_total ? progress : html`<span>started ${timeAgo(started_at)}</span>`}
  </div>`;
}

/** @param {{ seriesPoints: SeriesPoint[], audits: Schemas["RunAudits"] | null }} props */
function Tiles({ seriesPoints, audits }) {
  const labelAccuracy = seriesNamed(seriesPoints, "label_accuracy");
  const ofKept = labelAccuracy.find((series) => series.over === "kept");
  const ofAll = labelAccuracy.find((series) => series.over === "all" && series.oracle === ofKept?.oracle);
  const [inTraining] = seriesNamed(seriesPoints, "training_label_accuracy");
  const [keptShare] = seriesNamed(seriesPoints, "kept_share");
  const benchmark = benchmarkAccuracy(seriesPoints);
  const firstEvaluation = benchmark.points[0];
  const lastEvaluation = benchmark.points.at(-1);
  const before = lastEvaluation !== firstEvaluation ? `${percent(firstEvaluation.value)} before training` : "";
  /** @param {Series | undefined} series */
  const source = (series) => {
    const point = latestPoint(series);
    return point && `by ${humanise(point.oracle)}, iteration ${point.iteration}`;
  };
  /** @param {Series | undefined} series */
  const sourceAndBasis = (series) => {
    const point = latestPoint(series);
    return point && html`${source(series)}<br />${basisOfPoint(audits, point)}`;
  };
  const labelAccuracyTiles = html`
    <${Tile} label="Label accuracy (kept)" estimate=${latestPoint(ofKept)} note=${sourceAndBasis(ofKept)} />
    <${Tile} label="Label accuracy (all)" estimate=${latestPoint(ofAll)} note=${sourceAndBasis(ofAll)} />`;
  return html`<dl class="tiles">
    ${(ofKept || !inTraining) && labelAccuracyTiles}
    ${inTraining && html`<${Tile} label="Label accuracy (training)" estimate=${latestPoint(inTraining)} note=${source(inTraining)} />`}
    <${Tile} label=${benchmark.title.replace("accuracy", "pass@1")} estimate=${lastEvaluation} note=${before} />
    <${Tile} label="Kept" estimate=${keptShare?.points.at(-1)} note="of the candidates" />
  </dl>`;
}
