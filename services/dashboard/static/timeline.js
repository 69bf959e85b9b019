// A chart of the time that the stages of a run took.
import { html } from "/static/preact.js";
import { report } from "./api.js";
import { MARGIN } from "./axes.js";
import { Chart } from "./charts.js";
import { humanise } from "./format.js";
import { isLive } from "./parts.js";

const MAX_TIMELINE_ROWS = 30; // the last iterations; the table below the chart has all of them
/** @type {Record<string, string>} */
const STAGE_COLOURS = {
  train_challenger: "var(--c-challenger)",
  generate_questions: "color-mix(in oklab, var(--c-challenger), var(--paper) 45%)",
  label_questions: "color-mix(in oklab, var(--c-solver), var(--paper) 45%)",
  admit_questions: "color-mix(in oklab, var(--c-solver), var(--paper) 70%)",
  train_solver: "var(--c-solver)",
  train_labelled: "color-mix(in oklab, var(--c-solver), var(--ink) 30%)",
  evaluate: "var(--c-evaluate)",
  evaluate_labelled: "color-mix(in oklab, var(--c-evaluate), var(--ink) 30%)",
  audit_labels: "var(--c-audit)",
  check_health: "var(--muted)",
  read_prompts: "color-mix(in oklab, var(--c-challenger), var(--paper) 45%)",
  ask_a_person: "var(--v-no_majority)",
};
/** @param {string} stage */
export const stageColour = (stage) => STAGE_COLOURS[stage] ?? "var(--muted)";

/** @typedef {Schemas["Stage"] & { from: number, to: number, colour: string }} TimelineBar */

/**
 * The stages of each iteration one after the other, as bars that show how long they worked; one row for each iteration.
 *
 * @param {Schemas["Stage"][]} stages
 * @param {Schemas["RunWithConfig"]} run
 */
function timelineBars(stages, run) {
  const shownIterations = new Set([...new Set(stages.map((stage) => stage.iteration))].slice(-MAX_TIMELINE_ROWS));
  /** @type {TimelineBar[]} */
  const bars = [];
  for (const stage of stages.filter(({ iteration }) => shownIterations.has(iteration))) {
    const from = bars.findLast((bar) => bar.iteration === stage.iteration)?.to ?? 0;
    const seconds = stage.seconds ?? secondsOfUnfinished(stage, run);
    bars.push({ ...stage, from, to: from + seconds, colour: stageColour(stage.stage) });
  }
  return bars;
}

/**
 * How long a stage without an end has worked: until now, or until the report was written, or until its run was cancelled
 * or interrupted.
 *
 * @param {Schemas["Stage"]} stage
 * @param {Schemas["RunWithConfig"]} run
 */
function secondsOfUnfinished({ iteration, stage, started_at }, run) {
  const isAtWork = isLive(run) && run.iteration === iteration && run.stage === stage;
  const now = report ? new Date(report.written).getTime() : Date.now();
  const end = isAtWork ? now : new Date(run.since).getTime();
  return Math.max(0, (end - new Date(started_at).getTime()) / 1000);
}

/** @param {{ stages: Schemas["Stage"][], run: Schemas["RunWithConfig"], label: string }} props */
export function Timeline({ stages, run, label }) {
  const bars = timelineBars(stages, run);
  /** @param {number} width */
  const draw = (width) =>
    Plot.plot({
      width,
      height: 46 + 30 * new Set(bars.map((bar) => bar.iteration)).size,
      ...MARGIN,
      x: { label: "seconds of work", ticks: 6, grid: true },
      y: { label: null, type: "band", padding: 0.25, tickFormat: (/** @type {number} */ t) => `t = ${t}` },
      color: { type: "identity" },
      marks: [
        Plot.barX(bars, {
          x1: "from",
          x2: "to",
          y: "iteration",
          fill: "colour",
          fillOpacity: (bar) => (bar.status === "done" ? 1 : 0.55),
          insetLeft: 0.5,
          title: (bar) =>
            `${humanise(bar.stage)} ${bar.iteration}: ${bar.status}\n${(bar.to - bar.from).toFixed(1)} s, attempt ${bar.attempt}`,
        }),
      ],
    });
  return html`<${Chart} draw=${draw} data=${bars} label=${label} />`;
}
