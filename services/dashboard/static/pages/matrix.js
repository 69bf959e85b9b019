// R-Zero's Table 4: every Solver of a run on every iteration's questions.
import { html } from "/static/preact.js";
import { useAnswer } from "../api.js";
import { Picture } from "../charts.js";
import { interval, number, percent, words } from "../format.js";
import { Panel } from "../parts.js";

const EVERY = 60_000; // `coevo matrix` may be at it
const ROW = 54;
const WIDE = 116; // a cell that has room for its interval
const HEAD = ["questions of iteration", "Solver", "right", "95% interval", "n", "by"];

/** The evaluations on question sets, in order; those on benchmarks are shown elsewhere. */
function cellsOf(evaluations) {
  return evaluations.flatMap(({ checkpoint, benchmark, greedy }) => {
    const set = /^questions\/(\d+)\/(.+)$/.exec(benchmark);
    return set && greedy ? [{ ...greedy, questions: Number(set[1]), oracle: set[2], solver: Number(checkpoint.split("/").at(-1)) }] : [];
  }).sort((a, b) => a.questions - b.questions || a.solver - b.solver);
}

/** Nothing where no Solver was asked; `place` is the run's, in the API and in the page. */
export function Matrix({ place }) {
  const { data } = useAnswer(`${place}/evaluations`, {}, EVERY);
  const cells = cellsOf(data ?? []);
  if (cells.length === 0) return null;
  const oracles = [...new Set(cells.map((cell) => cell.oracle))];
  const rows = cells.map((cell) => [cell.questions, `S(${cell.solver})`, percent(cell.value), interval(cell), number(cell.n), words(cell.oracle)]);
  return html`<${Panel} title="Every Solver on every question set" wide id="matrix" table=${{ head: HEAD, rows }}
    about="The share of a sample of each iteration's questions that a Solver gets right, answering once and greedily. Down a column the questions change, along a row the Solver; framed is the one that was trained on them.">
    ${oracles.map((oracle) => html`<div key=${oracle}>
      ${oracles.length > 1 && html`<h3>by ${words(oracle)}</h3>`}
      <${Heat} cells=${cells.filter((cell) => cell.oracle === oracle)} place=${place} />
    </div>`)}
  </${Panel}>`;
}

function Heat({ cells, place }) {
  const values = cells.map((cell) => cell.value);
  const [low, span] = [Math.min(...values), Math.max(...values) - Math.min(...values)];
  // At most half of the colour, so that the text on it can be read, in the dark too.
  const colour = (cell) => `color-mix(in oklab, var(--paper), var(--c-solver) ${Math.round(8 + (span && (42 * (cell.value - low)) / span))}%)`;
  const say = (cell) =>
    `questions of iteration ${cell.questions}, S(${cell.solver})\n${percent(cell.value)} right by ${words(cell.oracle)}\n95%: ${interval(cell)}\nn ${number(cell.n)}`;
  const at = { x: "solver", y: "questions" };
  const draw = (width) => {
    const roomy = (width - 64) / new Set(cells.map((cell) => cell.solver)).size > WIDE;
    return Plot.plot({
      width,
      height: 52 + ROW * new Set(cells.map((cell) => cell.questions)).size,
      marginLeft: 48,
      marginRight: 16,
      marginTop: 14,
      marginBottom: 38,
      x: { label: "Solver", type: "band", padding: 0.03, tickFormat: (t) => `S(${t})`, tickSize: 0 },
      y: { label: null, type: "band", padding: 0.06, tickFormat: (t) => `t = ${t}`, tickSize: 0 },
      color: { type: "identity" },
      marks: [
        Plot.cell(cells, {
          ...at,
          fill: colour,
          stroke: (cell) => (cell.solver === cell.questions ? "var(--ink)" : "transparent"),
          strokeWidth: 1.2,
          rx: 4,
          href: (cell) => `${place}/${cell.questions}`,
          title: say,
        }),
        Plot.text(cells, { ...at, text: (cell) => percent(cell.value, 0), fill: "var(--ink)", fontSize: 15, fontWeight: 600, dy: roomy ? -8 : 0, pointerEvents: "none" }),
        roomy ? Plot.text(cells, { ...at, text: (cell) => `${interval(cell)} · n ${number(cell.n)}`, fill: "var(--ink)", dy: 11, pointerEvents: "none" }) : null,
      ],
    });
  };
  return html`<${Picture} draw=${draw} of=${[cells, place]} label="Share right by Solver and question set" />`;
}
