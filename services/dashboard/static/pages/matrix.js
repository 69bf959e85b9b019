// Table 4 of the R-Zero paper: the accuracy of every Solver of a run on every iteration's questions.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { Chart } from "../charts.js";
import { humanise, interval, number, percent } from "../format.js";
import { Panel } from "../parts.js";
import { runUrl } from "../router.js";

/** @typedef {Schemas["Estimate"] & { questionSet: number, solver: number, oracle: string }} Cell */

const POLL_MS = 60_000; // `coevo matrix` may be adding cells
const ROW_HEIGHT = 54;
const MIN_WIDTH_FOR_INTERVAL = 116; // of a cell, so that its interval fits
const TABLE_HEAD = ["questions of iteration", "Solver", "right", "95% interval", "n", "oracle"];

/**
 * The evaluations on question sets, sorted. Those on benchmarks are left out; the run's accuracy chart shows them.
 *
 * @param {Schemas["Evaluation"][]} evaluations
 * @returns {Cell[]}
 */
function cellsOf(evaluations) {
  const cells = evaluations.flatMap(({ checkpoint, benchmark, greedy }) => {
    const match = /^questions\/(\d+)\/(.+)$/.exec(benchmark);
    if (!match || !greedy) return [];
    return [
      { ...greedy, questionSet: Number(match[1]), oracle: match[2], solver: Number(checkpoint.split("/").at(-1)) },
    ];
  });
  return cells.sort((a, b) => a.questionSet - b.questionSet || a.solver - b.solver);
}

/** Shows nothing if there are no such evaluations. @param {{ run: string }} props */
export function Matrix({ run }) {
  const { data: evaluations } = useResponse("/runs/{run}/evaluations", { run }, POLL_MS);
  const cells = cellsOf(evaluations ?? []);
  if (cells.length === 0) return null;
  const oracles = [...new Set(cells.map((cell) => cell.oracle))];
  const rows = cells.map((cell) => [
    cell.questionSet,
    `S(${cell.solver})`,
    percent(cell.value),
    interval(cell),
    number(cell.n),
    humanise(cell.oracle),
  ]);
  const heatmaps = oracles.map(
    (oracle) => html`<div key=${oracle}>
      ${oracles.length > 1 && html`<h3>by ${humanise(oracle)}</h3>`}
      <${Heatmap} cells=${cells.filter((cell) => cell.oracle === oracle)} url=${runUrl(run)} />
    </div>`,
  );
  return html`<${Panel} title="Every Solver on every question set" wide id="matrix" table=${{ head: TABLE_HEAD, rows }}
    about="The share of a sample of each iteration's questions that a Solver answers right, with one greedy answer per question. Each row is a question set and each column a Solver. A frame marks the Solver that was trained on the questions.">
    ${heatmaps}
  </${Panel}>`;
}

/** @param {{ cells: Cell[], url: string }} props `url` is the run's */
function Heatmap({ cells, url }) {
  const values = cells.map((cell) => cell.value);
  const lowest = Math.min(...values);
  const span = Math.max(...values) - lowest;
  /** @param {Cell} cell */
  const colour = (cell) => {
    // The colour has a share of at most 50%, so that the text on it stays readable in both themes.
    const share = 8 + (span && (42 * (cell.value - lowest)) / span);
    return `color-mix(in oklab, var(--paper), var(--c-solver) ${Math.round(share)}%)`;
  };
  /** @param {Cell} cell */
  const title = (cell) =>
    [
      `questions of iteration ${cell.questionSet}, S(${cell.solver})`,
      `${percent(cell.value)} right by ${humanise(cell.oracle)}`,
      `95%: ${interval(cell)}`,
      `n ${number(cell.n)}`,
    ].join("\n");
  const position = { x: "solver", y: "questionSet" };
  const text = { ...position, fill: "var(--ink)", pointerEvents: "none" };
  /** @param {number} width */
  const draw = (width) => {
    const cellWidth = (width - 64) / new Set(cells.map((cell) => cell.solver)).size;
    const showInterval = cellWidth > MIN_WIDTH_FOR_INTERVAL;
    return Plot.plot({
      width,
      height: 52 + ROW_HEIGHT * new Set(cells.map((cell) => cell.questionSet)).size,
      marginLeft: 48,
      marginRight: 16,
      marginTop: 14,
      marginBottom: 38,
      x: {
        label: "Solver",
        type: "band",
        padding: 0.03,
        tickFormat: (/** @type {number} */ t) => `S(${t})`,
        tickSize: 0,
      },
      y: {
        label: null,
        type: "band",
        padding: 0.06,
        tickFormat: (/** @type {number} */ t) => `t = ${t}`,
        tickSize: 0,
      },
      color: { type: "identity" },
      marks: [
        Plot.cell(cells, {
          ...position,
          fill: colour,
          stroke: (cell) => (cell.solver === cell.questionSet ? "var(--ink)" : "transparent"),
          strokeWidth: 1.2,
          rx: 4,
          href: (cell) => `${url}/${cell.questionSet}`,
          title,
        }),
        Plot.text(cells, {
          ...text,
          text: (cell) => percent(cell.value, 0),
          fontSize: 15,
          fontWeight: 600,
          dy: showInterval ? -8 : 0,
        }),
        showInterval
          ? Plot.text(cells, { ...text, text: (cell) => `${interval(cell)} · n ${number(cell.n)}`, dy: 11 })
          : null,
      ],
    });
  };
  return html`<${Chart} draw=${draw} data=${[cells, url]} label="Share right by Solver and question set" />`;
}
