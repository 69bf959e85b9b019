// Table 4 of the R-Zero paper: the accuracy of every Solver of a run on every iteration's questions.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { Chart } from "../charts.js";
import { humanise, interval, number, percent } from "../format.js";
import { Panel } from "../parts.js";
import { runUrl } from "../router.js";

/** @typedef {Schemas["Estimate"] & { questionSet: number, answerer: string, isOwn: boolean, oracle: string }} Cell */

const POLL_MS = 60_000; // `coevo show matrix` may be adding cells
const ROW_HEIGHT = 54;
const LABELS = "pseudo-labels"; // in place of a Solver
const MIN_WIDTH_FOR_INTERVAL = 116; // of a cell, so that its interval fits
const TABLE_HEAD = ["questions of iteration", "answered by", "right", "95% interval", "n", "oracle"];

/**
 * The cells over all questions; of an oracle that has none, those over the kept questions.
 *
 * @param {Schemas["MatrixCell"][]} matrix
 * @returns {Cell[]}
 */
function cellsOf(matrix) {
  const overAll = new Set(matrix.filter(({ over }) => over === "all").map(({ oracle }) => oracle));
  return matrix
    .filter(({ oracle, over }) => over === (overAll.has(oracle) ? "all" : "kept"))
    .map(({ oracle, over, questions, solver, figure }) => {
      const iteration = Number(solver?.split("/").at(-1));
      return {
        ...figure,
        questionSet: questions,
        answerer: solver === null ? LABELS : `S(${iteration})`,
        isOwn: iteration === questions,
        oracle: `${humanise(oracle)}${over === "kept" ? ", kept questions" : ""}`,
      };
    });
}

/** Shows nothing if there are no such evaluations. @param {{ run: string }} props */
export function Matrix({ run }) {
  const { data: matrix } = useResponse("/runs/{run}/matrix", { run }, POLL_MS);
  const cells = cellsOf(matrix ?? []);
  if (cells.length === 0) return null;
  const oracles = [...new Set(cells.map((cell) => cell.oracle))];
  const rows = cells.map((cell) => [
    cell.questionSet,
    cell.answerer,
    percent(cell.value),
    interval(cell),
    number(cell.n),
    cell.oracle,
  ]);
  const heatmaps = oracles.map(
    (oracle) => html`<div key=${oracle}>
      ${oracles.length > 1 && html`<h3>by ${oracle}</h3>`}
      <${Heatmap} cells=${cells.filter((cell) => cell.oracle === oracle)} url=${runUrl(run)} />
    </div>`,
  );
  return html`<${Panel} title="Every Solver on every question set" wide id="matrix" table=${{ head: TABLE_HEAD, rows }}
    about="The share of a sample of each iteration's questions that a Solver answers right, with one greedy answer per question, and the share of right pseudo-labels. Each row is a question set. A frame marks the Solver that was trained on the questions. If the oracle graded a sample, shares are weighted to all questions.">
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
      `questions of iteration ${cell.questionSet}, ${cell.answerer}`,
      `${percent(cell.value)} right by ${cell.oracle}`,
      `95%: ${interval(cell)}`,
      `n ${number(cell.n)}`,
    ].join("\n");
  const answerers = new Set(cells.map((cell) => cell.answerer));
  answerers.delete(LABELS);
  const solvers = [...answerers].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const position = { x: "answerer", y: "questionSet" };
  const text = { ...position, fill: "var(--ink)", pointerEvents: "none" };
  /** @param {number} width */
  const draw = (width) => {
    const cellWidth = (width - 64) / (solvers.length + 1);
    const showInterval = cellWidth > MIN_WIDTH_FOR_INTERVAL;
    return Plot.plot({
      width,
      height: 52 + ROW_HEIGHT * new Set(cells.map((cell) => cell.questionSet)).size,
      marginLeft: 48,
      marginRight: 16,
      marginTop: 14,
      marginBottom: 38,
      x: {
        label: null,
        type: "band",
        padding: 0.03,
        domain: [...solvers, LABELS],
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
          stroke: (cell) => (cell.isOwn ? "var(--ink)" : "transparent"),
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
