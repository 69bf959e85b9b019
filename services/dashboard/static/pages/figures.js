// The panels of a run's figures: charts by iteration, by training step and by stage.
import { html } from "/static/preact.js";
import { unlessReport } from "../api.js";
import { IterationChart, VerdictChart } from "../charts.js";
import { duration, humanise, number, percent } from "../format.js";
import { FIGURES, SIGNS } from "../known_figures.js";
import { Empty, Legend, Panel, VERDICTS } from "../parts.js";
import { checkpointUrl, trainingUrl } from "../router.js";
import { benchmarkAccuracy, notTested, seriesNamed, TABLE_HEAD, tableRows } from "../series.js";
import { StepChart } from "../step_chart.js";
import { stageColour, Timeline } from "../timeline.js";
import { scrolledToQuestions } from "./questions.js";

/** @typedef {Schemas["IterationSummary"]} IterationSummary */
/** @typedef {Schemas["Stage"]} Stage */
/** @typedef {Schemas["Checkpoint"]} Checkpoint */
/** @typedef {Schemas["StepLabelFigures"]} StepLabelFigures */
/** @typedef {Schemas["TrainMetric"]} TrainMetric */
/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */

const ORACLE_COLOURS = ["var(--c-kept)", "var(--c-held-out)", "var(--c-audit)", "var(--c-challenger)"];
const TRAINING_LABEL_SERIES = [
  ["training_label_accuracy", "right labels", "var(--c-kept)"],
  ["training_labelled_share", "labelled prompts", "var(--c-audit)"],
  ["negative_label_accuracy", "accuracy of negative labels", "var(--c-challenger)"],
];
const LABEL_COUNT_SERIES = [
  ["positive_labels", "prompts with a label", "var(--c-kept)"],
  ["negative_labels", "negative labels", "var(--c-challenger)"],
];
const ROLLOUT_ENTROPY_SERIES = [
  ["right_entropy", "right rollouts", "var(--c-kept)"],
  ["wrong_entropy", "wrong rollouts", "var(--c-challenger)"],
];

/**
 * @param {{ url: string, config: import("../parts.js").RunConfig, seriesPoints: SeriesPoint[] }} props `url` is the page
 *   of the run, in all panels
 */
export function LabelAccuracy({ url, config, seriesPoints }) {
  const allSeries = seriesNamed(seriesPoints, "label_accuracy");
  const oracles = [...new Set(allSeries.map(({ oracle }) => oracle))];
  const lines = allSeries.map(({ oracle, over, points }) => {
    const wrongLabels = `?oracle=${oracle}&oracle_verdict=wrong${over === "kept" ? "&verdict=kept" : ""}`;
    return {
      name: `${over} by ${humanise(oracle)}`,
      colour: ORACLE_COLOURS[oracles.indexOf(oracle) % ORACLE_COLOURS.length],
      dash: over === "all" ? "4 4" : "none",
      // An estimate has no graded labels to list, so its point links to the iteration.
      points: points.map((point) => ({
        ...point,
        href: point.estimated
          ? `${url}/${point.iteration}`
          : scrolledToQuestions(`${url}/${point.iteration}${wrongLabels}`),
      })),
    };
  });
  const chart = html`<${IterationChart} lines=${lines} height=${300} label="Pseudo-label accuracy by iteration" />`;
  const kept = allSeries.find(({ over }) => over === "kept");
  const untested = kept ? notTested(kept.points, config) : "";
  const empty = html`<${Empty}>No label has been audited yet. The labels of an iteration are audited after its evaluation.</${Empty}>`;
  return html`<${Panel} title="Pseudo-label accuracy" wide id="label-accuracy" table=${{ head: TABLE_HEAD, rows: tableRows(lines, percent) }}
    about=${`The share of audited pseudo-labels that an oracle agrees with. Solid lines with circles are the kept questions, dashed lines with diamonds are all questions, and bands are 95% intervals. ${unlessReport("Click a point to list the wrong labels. ")}A hollow point is an estimate from p̂, calibrated on the audits of other iterations. It may miss a fall, so no line leads to it.${unlessReport(" It links to its iteration.")}${untested}`}>
    ${lines.length ? chart : empty}
  </${Panel}>`;
}

/**
 * The accuracy of the labels that the Solver's method makes itself at every training step.
 *
 * @param {{ steps: StepLabelFigures[], seriesPoints: SeriesPoint[] }} props
 */
export function TrainingLabels({ steps, seriesPoints }) {
  /**
   * @param {Children} heading
   * @param {string[][]} series
   * @param {string} label
   * @param {number} height
   * @param {string} [unit] none if they are shares
   */
  const byIteration = (heading, series, label, height, unit) => {
    const lines = series.flatMap(([name, title, colour]) =>
      seriesNamed(seriesPoints, name).map(({ points }) => ({ name: title, colour, points })),
    );
    const chart = html`<${IterationChart} lines=${lines} share=${!unit} unit=${unit} height=${height} label=${label} />`;
    return lines.length > 0 && html`<h3>${heading}</h3>${chart}`;
  };
  const stepPoints = steps.flatMap(({ iteration, step, accuracy }) =>
    accuracy ? [{ iteration, step, ...accuracy }] : [],
  );
  const rows = stepPoints.map(({ iteration, step, value, lo, hi, n }) => [
    iteration,
    step,
    percent(value),
    `${percent(lo)} – ${percent(hi)}`,
    n,
  ]);
  const source = steps[0].oracle === "given" ? "compared with the prompts' own answers" : "graded by the exact oracle";
  const byStep = html`<${StepChart} points=${stepPoints} share label="Right labels by training step" />`;
  const entropyHeading = html`Entropy of right and wrong rollouts <small>nats per token</small>`;
  return html`<${Panel} title="Labels made in training" table=${{ head: ["iteration", "step", "right labels", "95% interval", "n"], rows }}
    about=${`The share of right labels among those that the Solver's method made in training, ${source}. Prompts without a label do not count. The later the iteration, the stronger its colour.`}>
    <h3>By step</h3>
    ${stepPoints.length ? byStep : html`<${Empty}>No prompt was labelled.</${Empty}>`}
    ${byIteration("By iteration", TRAINING_LABEL_SERIES, "Labels made in training, by iteration", 170)}
    ${byIteration("Number in a step, by iteration", LABEL_COUNT_SERIES, "Number of labels in a step, by iteration", 150, "in a step")}
    ${byIteration(entropyHeading, ROLLOUT_ENTROPY_SERIES, "Entropy of right and wrong rollouts, by iteration", 150, "nats per token")}
  </${Panel}>`;
}

/**
 * @param {{
 *   url: string,
 *   config: import("../parts.js").RunConfig,
 *   seriesPoints: SeriesPoint[],
 *   checkpoints: Checkpoint[],
 *   evaluations: Schemas["Evaluation"][],
 * }} props `evaluations` are those on the run's benchmark
 */
export function BenchmarkAccuracy({ url, config, seriesPoints, checkpoints, evaluations }) {
  // The base model is the Solver of iteration 0.
  const solvers = new Map(
    checkpoints
      .filter(({ role }) => role === "base" || role === "solver")
      .map((checkpoint) => [checkpoint.iteration, checkpoint]),
  );
  /**
   * A figure of the checkpoints of some roles that the series do not have.
   *
   * @param {string} name @param {string} colour @param {string[]} roles
   * @param {"pass_at_1" | "greedy" | "majority"} figure
   */
  const lineOf = (name, colour, roles, figure) => ({
    name,
    colour,
    points: checkpoints
      .filter(({ role }) => roles.includes(role))
      .flatMap(({ id, iteration }) =>
        evaluations
          .filter(({ checkpoint }) => checkpoint === id)
          .map((evaluation) => ({ ...evaluation[figure], iteration, href: checkpointUrl(id) })),
      ),
  });
  const { title, about, points } = benchmarkAccuracy(seriesPoints, config);
  const line = {
    name: "pass@1",
    colour: "var(--c-held-out)",
    points: points.map((point) => {
      const solver = solvers.get(point.iteration);
      return { ...point, href: solver && `${url}/checkpoints/${solver.role}/${solver.iteration}` };
    }),
  };
  const others = [
    lineOf("greedy", "var(--c-challenger)", ["base", "solver"], "greedy"),
    lineOf(`majority of ${evaluations[0]?.samples}`, "var(--c-kept)", ["base", "solver"], "majority"),
    lineOf("pass@1 of the branch on labelled data", "var(--c-audit)", ["labelled"], "pass_at_1"),
  ];
  const lines = [line, ...others.filter((other) => other.points.length)];
  const chart = html`<${IterationChart} lines=${lines} label=${`${title} by iteration`} legend=${lines.length > 1} />`;
  const untested = notTested(points, config);
  const guarded = untested && `${untested} The guard's signal decline tests whether it falls.`;
  return html`<${Panel} title=${title} about=${`${about}${guarded}`} table=${{ head: TABLE_HEAD, rows: tableRows(lines, percent) }}>
    ${points.length ? chart : html`<${Empty}>No evaluation yet.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ url: string, seriesPoints: SeriesPoint[] }} props */
export function Difficulty({ url, seriesPoints }) {
  const lines = seriesNamed(seriesPoints, "p_hat").map(({ over, points }, i) => ({
    name: over || "all",
    colour: i ? "var(--c-kept)" : "var(--c-challenger)",
    points: points.map((point) => ({ ...point, href: `${url}/${point.iteration}` })),
  }));
  const chart = html`<${IterationChart} lines=${lines} label="Mean p-hat by iteration" />`;
  return html`<${Panel} title="Difficulty" about="Mean p̂, which shows how far the Solver's votes agree. The Solver learns most at ½." table=${{ head: TABLE_HEAD, rows: tableRows(lines, percent) }}>
    ${lines.length ? chart : html`<${Empty}>No questions have been labelled yet.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ url: string, iterations: IterationSummary[] }} props */
export function Verdicts({ url, iterations }) {
  const rows = iterations.flatMap(({ iteration, verdicts, questions }) =>
    VERDICTS.filter((verdict) => verdicts[verdict]).map((verdict) => ({
      iteration,
      verdict,
      questions: verdicts[verdict],
      share: verdicts[verdict] / (questions ?? 0),
      href: scrolledToQuestions(`${url}/${iteration}?verdict=${verdict}`),
    })),
  );
  const table = {
    head: ["iteration", "verdict", "questions", "share"],
    rows: rows.map((row) => [row.iteration, humanise(row.verdict), number(row.questions), percent(row.share)]),
  };
  const chart = html`<${VerdictChart} rows=${rows} height=${330} label="Verdicts by iteration" />
    <${Legend} items=${VERDICTS.map((verdict) => [humanise(verdict), `var(--v-${verdict})`])} />`;
  return html`<${Panel} title="Verdicts on the questions" table=${table}>
    ${rows.length ? chart : html`<${Empty}>No questions have been labelled yet.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ run: string, metrics: TrainMetric[] }} props the mean reward of each step */
export function Rewards({ run, metrics }) {
  /** @param {string} role */
  const pointsOf = (role) => metrics.filter((metric) => metric.role === role && metric.value !== null);
  /** @param {string} role */
  const hrefOf =
    (role) =>
    (/** @type {{ iteration: number, step: number }} */ { iteration, step }) =>
      `${trainingUrl({ run, role, iteration })}?step=${step}`;
  return html`<${Panel} title="Reward in training" about=${`The mean reward of each step. The later the iteration, the stronger its colour.${unlessReport(" A click on a step shows its rollouts.")}`}>
    ${["challenger", "solver"].map((role) =>
      pointsOf(role).length
        ? html`<h3>${role === "solver" ? "Solver" : "Challenger"}</h3><${StepChart} points=${pointsOf(role)} hrefOf=${hrefOf(role)} label=${`Reward of the ${role} by step`} />`
        : null,
    )}
    ${metrics.length === 0 && html`<${Empty}>No step of a training has ended yet.</${Empty}>`}
  </${Panel}>`;
}

/** @param {{ seriesPoints: SeriesPoint[] }} props */
export function Signals({ seriesPoints }) {
  const signals = SIGNS.map((name) => {
    const { title, unit, share } = FIGURES[name];
    const lines = seriesNamed(seriesPoints, name).map(({ over, oracle, points }, i) => ({
      name: [over, oracle && `by ${humanise(oracle)}`].filter(Boolean).join(" ") || title,
      colour: ORACLE_COLOURS[i % ORACLE_COLOURS.length],
      points,
    }));
    return { name, title, unit, share, lines };
  }).filter(({ lines }) => lines.length);
  const rows = signals.flatMap(({ title, share, lines }) =>
    tableRows(
      lines.map((line) => ({ ...line, name: `${title}: ${line.name}` })),
      share ? percent : number,
    ),
  );
  return html`<${Panel} title="Signs of collapse" wide table=${{ head: TABLE_HEAD, rows }}
    about="Signs that a training collapses: falling entropy, a KL that jumps together with the pseudo-reward, answers that get much shorter or longer, fewer strategies among the rollouts, repeated questions, votes that agree more often than labels are right, and questions harder than those that the Solver solves.">
    ${signals.length === 0 && html`<${Empty}>No iteration has been measured yet.</${Empty}>`}
    <div class="small-multiples">
      ${signals.map(
        ({ name, title, unit, share, lines }) => html`<div key=${name}>
          <h3>${title}${unit && html` <small>${unit}</small>`}</h3>
          <${IterationChart} lines=${lines} share=${share} unit=${unit} height=${150} label=${title} legend=${false} />
        </div>`,
      )}
    </div>
  </${Panel}>`;
}

/** @param {{ run: Schemas["RunWithConfig"], stages: Stage[] }} props */
export function Stages({ run, stages }) {
  const names = [...new Set(stages.map(({ stage }) => stage))];
  const table = {
    head: ["iteration", "stage", "status", "attempt", "duration", "error"],
    rows: stages.map(({ iteration, stage, status, attempt, seconds, error }) => [
      iteration,
      humanise(stage),
      status,
      attempt,
      duration(seconds),
      error ?? "",
    ]),
  };
  const chart = html`<${Timeline} stages=${stages} run=${run} label="Stages by iteration" /><${Legend} items=${names.map((name) => [humanise(name), stageColour(name)])} />`;
  return html`<${Panel} title="Time by stage" wide table=${table}>
    ${stages.length ? chart : html`<${Empty}>No stage has started yet.</${Empty}>`}
  </${Panel}>`;
}
