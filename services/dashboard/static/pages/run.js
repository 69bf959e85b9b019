// The page of one run: its state, its figures by iteration, its audits, its alerts, and the controls to cancel, resume
// or answer it.
import { html, useState } from "/static/preact.js";
import { post, report, useResponse, useResponses } from "../api.js";
import { humanise, percent, timeAgo } from "../format.js";
import { ActionButton, configOf, ErrorMessage, Heading, isLive, Loading, Panel, Tile } from "../parts.js";
import { runUrl } from "../router.js";
import { benchmarkAccuracy, latestPoint, seriesNamed } from "../series.js";
import { isStored, Reason, RunStatus } from "../states.js";
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
import { Headline } from "./headline.js";
import { Iterations } from "./iterations.js";
import { Matrix } from "./matrix.js";
import { EditNotes } from "./notes.js";
import { RemainingTime } from "./remaining.js";
import { LastLines, RunLog } from "./run_log.js";
import { TrainingNow } from "./step_curves.js";

/** @typedef {Schemas["RunWithConfig"]} RunWithConfig */
/** @typedef {import("../parts.js").RunConfig} RunConfig */
/** @typedef {Schemas["IterationSummary"]} IterationSummary */
/** @typedef {Schemas["Stage"]} Stage */
/** @typedef {Schemas["Checkpoint"]} Checkpoint */
/** @typedef {Schemas["TrainMetric"]} TrainMetric */
/** @typedef {Schemas["Decision"]["decision"]} Decision */
/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */
/** @typedef {import("../series.js").Series} Series */

const POLL_MS = 4_000;
const SLOW_POLL_MS = 10_000; // of an idle run, which somebody may resume elsewhere, and of the remaining time
const AUDITS_POLL_MS = 60_000; // the API computes them from all labels, which takes a while
/** @type {Decision[]} */
const DECISIONS = ["go on", "roll back", "stop"];

/** @param {{ run: string }} props */
export function RunPage({ run: name }) {
  const [live, setLive] = useState(true);
  const {
    data: run,
    error,
    refetch: refetchRun,
  } = useResponse("/runs/{run}", { run: name }, live ? POLL_MS : SLOW_POLL_MS);
  const {
    data,
    error: dataError,
    refetch: refetchData,
  } = useResponses(
    run && isStored(run)
      ? [
          ["/runs/{run}/iterations", { run: name }],
          ["/runs/{run}/series", { run: name }],
          ["/runs/{run}/stages", { run: name }],
          ["/runs/{run}/metrics", { run: name, name: "reward_mean" }],
          ["/runs/{run}/checkpoints", { run: name }],
          ["/runs/{run}/evaluations", { run: name }],
          ["/alerts", { run: name, limit: 20 }],
          ["/alerts", { run: name, acknowledged: false, severity: "critical", limit: 20 }],
        ]
      : null,
    live ? POLL_MS : 0,
  );
  const shouldPoll = !run || isLive(run);
  if (shouldPoll !== live) setLive(shouldPoll);
  const refetch = () => {
    refetchRun();
    refetchData();
  };
  if (run === null && error) {
    return html`<${Heading} breadcrumbs=${[["Runs", "/"]]} title=${name} /><${ErrorMessage} error=${error} />`;
  }
  if (run && !isStored(run)) return html`<${NotStored} run=${run} refetch=${refetch} />`;
  return html`<${Loading} data=${run && data} error=${error ?? dataError}>${run && data && html`<${Run} run=${run} data=${data} refetch=${refetch} />`}</${Loading}>`;
}

/** A run that only Prefect knows. @param {{ run: RunWithConfig, refetch: () => void }} props */
function NotStored({ run, refetch }) {
  return html`<${Heading} breadcrumbs=${[["Runs", "/"]]} title=${run.name} aside=${html`<${RunStatus} run=${run} /><${Actions} run=${run} refetch=${refetch} />`}>
      ${run.preset ?? "no preset"} · accepted ${timeAgo(run.created_at)}
    </${Heading}>
    <${CurrentState} run=${run} stages=${[]} />`;
}

/**
 * @typedef {[
 *   iterations: IterationSummary[],
 *   seriesPoints: SeriesPoint[],
 *   stages: Stage[],
 *   rewards: TrainMetric[],
 *   checkpoints: Checkpoint[],
 *   evaluations: Schemas["Evaluation"][],
 *   alerts: Schemas["AlertPage"],
 *   criticalAlerts: Schemas["AlertPage"],
 * ]} RunData
 * @param {{ run: RunWithConfig, data: RunData, refetch: () => void }} props
 */
function Run({ run, data, refetch }) {
  const [iterations, seriesPoints, stages, rewards, checkpoints, evaluations, alerts, critical] = data;
  // These need the run's settings, which an API without the package of its reward cannot read; the others do not.
  const { data: labels, error: labelsError } = useResponse(
    "/runs/{run}/training-labels",
    { run: run.name },
    isLive(run) ? POLL_MS : 0,
  );
  const trainingLabels = labels ?? [];
  const { data: audits } = useResponse("/runs/{run}/audits", { run: run.name }, isLive(run) ? AUDITS_POLL_MS : 0);
  const url = runUrl(run.name);
  const config = configOf(run);
  const onBenchmark = evaluations.filter(({ benchmark }) => benchmark === config.evaluation.benchmark);
  const makesNoLabels = labels ? labels.length === 0 : labelsError !== null; // neither while they are loading
  // Prompts without a vote have the verdict "kept" because nothing was filtered.
  const isVotedOn = config.kind !== "self_train" || iterations.some(({ mean_p_hat }) => mean_p_hat !== null);
  const hasPseudoLabels = makesNoLabels || seriesNamed(seriesPoints, "label_accuracy").length > 0;
  return html`
    <${Heading} breadcrumbs=${[["Runs", "/"]]} title=${run.name} aside=${html`<${RunStatus} run=${run} /><${Actions} run=${run} refetch=${refetch} />`}>
      ${run.preset ?? "no preset"} · ${config.solver.reward.type} · ${config.shared && "one model in both roles · "}seed ${run.seed} · ${run.inherited.map(({ run: maker, last }) => html`<span key=${maker}>iterations up to ${last} from <a href=${runUrl(maker)}>${maker}</a> · </span>`)}created ${timeAgo(run.created_at)}${!report && html` · <a href=${`/compare?run=${encodeURIComponent(run.name)}`}>compare with other runs</a> · <a href=${`${url}/configuration`}>configuration</a>`}
    </${Heading}>
    ${critical.items.length > 0 && html`<section class="banner" aria-label="Critical alerts that nobody has acknowledged"><${AlertList} alerts=${critical.items} refetch=${refetch} empty="" /></section>`}
    <${EditNotes} run=${run} refetch=${refetch} />
    <${ErrorMessage} error=${labelsError} />
    <${CurrentState} run=${run} stages=${stages} />
    <${Headline} run=${run.name} pollMs=${isLive(run) ? AUDITS_POLL_MS : 0} />
    ${run.active && !report && html`<${RemainingTime} run=${run.name} pollMs=${SLOW_POLL_MS} />`}
    <${Tiles} config=${config} seriesPoints=${seriesPoints} isVotedOn=${isVotedOn} audits=${audits} />
    <div class="panels">
      ${!report && html`<${TrainingNow} run=${run} />`}
      <${Iterations} run=${run.name} url=${url} config=${config} iterations=${iterations} seriesPoints=${seriesPoints} />
      ${hasPseudoLabels && html`<${LabelAccuracy} url=${url} config=${config} seriesPoints=${seriesPoints} />`}
      <${Audits} audits=${audits} url=${url} />
      ${trainingLabels.length > 0 && html`<${TrainingLabels} steps=${trainingLabels} seriesPoints=${seriesPoints} />`}
      <${BenchmarkAccuracy} url=${url} config=${config} seriesPoints=${seriesPoints} checkpoints=${checkpoints} evaluations=${onBenchmark} />
      ${config.kind !== "self_train" && html`<${Difficulty} url=${url} seriesPoints=${seriesPoints} />`}
      ${isVotedOn && html`<${Verdicts} url=${url} iterations=${iterations} />`}
      <${Rewards} run=${run.name} metrics=${rewards} />
      <${Matrix} run=${run.name} />
      <${Signals} seriesPoints=${seriesPoints} />
      <${Stages} run=${run} stages=${stages} />
      <${Cost} run=${run.name} pollMs=${isLive(run) ? AUDITS_POLL_MS : 0} />
      <${Panel} id="alerts" title="Alerts" wide about="Alerts from the guard and the drift rules.">
        <${AlertList} alerts=${alerts.items} refetch=${refetch} empty="No alerts." />
      </${Panel}>
      <${RunLog} run=${run.name} pollMs=${isLive(run) ? POLL_MS : 0} />
    </div>
  `;
}

/** @param {{ run: RunWithConfig, refetch: () => void }} props */
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
  if (run.state === "paused") {
    return html`<div class="actions">
      ${DECISIONS.map((decision) => html`<${ActionButton} key=${decision} action=${decide(decision)}>${decision}</${ActionButton}>`)}
    </div>`;
  }
  const canBeResumed = isStored(run) && !["done", "stopped"].includes(run.state);
  const cancelButton = html`<${ActionButton} class="quiet" action=${trigger("cancel")}>Cancel</${ActionButton}>`;
  const resumeButton = html`<${ActionButton} action=${trigger("resume")}>Resume</${ActionButton}>`;
  return html`<div class="actions">${isLive(run) ? cancelButton : canBeResumed && resumeButton}</div>`;
}

/** The reason for the run's state, and the progress of its stage. @param {{ run: RunWithConfig, stages: Stage[] }} props */
function CurrentState({ run, stages }) {
  const current = stages.find(({ iteration, stage }) => iteration === run.iteration && stage === run.stage);
  const { progress_done: done, progress_total: total } = current ?? {};
  const hasProgress = run.state === "running" && Boolean(total);
  return html`<div class="now" aria-live="polite">
    <${Reason} run=${run}>
      ${hasProgress && html`<progress max=${total} value=${done} aria-label=${`${humanise(String(run.stage))} ${run.iteration}`}></progress>`}
    </${Reason}>
    ${current?.status === "failed" && html`<${LastLines} run=${run.name} stage=${current} />`}
  </div>`;
}

/** @param {{ config: RunConfig, seriesPoints: SeriesPoint[], isVotedOn: boolean, audits: Schemas["RunAudits"] | null }} props */
function Tiles({ config, seriesPoints, isVotedOn, audits }) {
  const labelAccuracy = seriesNamed(seriesPoints, "label_accuracy");
  const ofKept = labelAccuracy.find((series) => series.over === "kept");
  const ofAll = labelAccuracy.find((series) => series.over === "all" && series.oracle === ofKept?.oracle);
  const [inTraining] = seriesNamed(seriesPoints, "training_label_accuracy");
  const [keptShare] = seriesNamed(seriesPoints, "kept_share");
  const benchmark = benchmarkAccuracy(seriesPoints, config);
  const firstEvaluation = benchmark.points[0];
  const lastEvaluation = benchmark.points.at(-1);
  const lastKept = keptShare?.points.at(-1);
  /** @param {SeriesPoint | undefined} point */
  const of = (point) => (point ? `, iteration ${point.iteration}` : "");
  const before = lastEvaluation !== firstEvaluation && html`<br />${percent(firstEvaluation.value)} before training`;
  /** @param {Series | undefined} series */
  const source = (series) => {
    const point = latestPoint(series);
    return point && `by ${humanise(point.oracle)}${of(point)}`;
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
    <${Tile} label=${benchmark.title} estimate=${lastEvaluation} note=${html`pass@1 on ${benchmark.benchmark}${of(lastEvaluation)}${before}`} />
    ${isVotedOn && html`<${Tile} label="Kept" estimate=${lastKept} note=${`of the candidates${of(lastKept)}`} />`}
  </dl>`;
}
