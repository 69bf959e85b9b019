// The table of a comparison: accuracy over seeds, and paired differences to the baseline.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { IterationChart } from "../charts.js";
import { number, points } from "../format.js";
import { ErrorMessage, Panel, Table } from "../parts.js";

/** @typedef {Schemas["ArmFigures"]} ArmFigures @typedef {Schemas["Difference"]} Difference */

const POLL_MS = 60_000; // runs of an experiment may be at work
const FIGURES = { greedy: "greedy", majority: "majority", pass_at_1: "pass@1", label_accuracy: "labels right, kept" };

/** @param {{ names: string[], colours: string[] }} props `names` is an experiment, or two runs or more */
export function ArmComparison({ names, colours }) {
  const { data: comparison, error } = useResponse("/comparison", { name: names }, POLL_MS);
  if (error) return html`<${ErrorMessage} error=${error} />`;
  if (!comparison) return null;
  const { arms, benchmark, questions } = comparison;
  const shown = Object.entries(FIGURES).filter(([name]) => arms.some((arm) => lastPoint(arm, name)));
  const hasSeeds = arms.some((arm) => arm.runs.length > 1);
  const about = [
    `Percent right of ${number(questions)} questions of ${benchmark}, after each arm's last iteration.`,
    hasSeeds ? "The first line is the mean over seeds, with its interval over seeds." : "",
    ...(questions > 0 ? comparison.remarks : ["They have no question in common, so there are no differences."]),
  ]
    .filter(Boolean)
    .join(" ");
  const unfinished = [...new Set(arms.flatMap((arm) => arm.unfinished))];
  const differing = [...new Set(arms.flatMap(({ settings }) => Object.keys(settings)))];
  // A run has the colour that it has in other charts. Its training on labelled data is an arm of its own, and is dashed.
  const areRuns = names.length > 1;
  const lines = arms.map((arm, i) => ({
    name: arm.arm,
    colour: colours[(areRuns ? names.indexOf(arm.runs[0]) : i) % colours.length],
    dash: areRuns && arm.arm !== arm.runs[0] ? "4 4" : "none",
    points: arm.curves.greedy.map(({ iteration, mean, interval, values }) => ({
      iteration,
      value: mean,
      lo: interval?.lo,
      hi: interval?.hi,
      n: values.length,
      inherited_from: arm.inherited !== null && iteration <= arm.inherited ? "other runs" : null,
    })),
  }));
  return html`<${Panel} title="Accuracy on the same questions" wide id="comparison" about=${about}>
    <${Table} label="Accuracy of each arm" class="numbers" head=${["arm", "seeds", "iteration", ...shown.map(([, title]) => title)]}>
      <tbody>${arms.map(
        (arm) => html`<tr key=${arm.arm}>
          <td>${arm.arm}</td><td>${arm.runs.length}</td><td>${arm.iteration}</td>
          ${shown.map(([name]) => html`<td key=${name}><${Figure} arm=${arm} name=${name} /></td>`)}
        </tr>`,
      )}</tbody>
    </${Table}>
    ${unfinished.length > 0 && html`<p>Not counted, since they have not ended: ${unfinished.join(", ")}</p>`}
    <h3>Greedy accuracy by iteration</h3>
    <${IterationChart} lines=${lines} label="Greedy accuracy by iteration" />
    ${
      names.length === 1 && // of runs, a table of their own is above
      differing.length > 0 &&
      html`<details><summary>Settings in which they differ (${differing.length})</summary>
      <${Table} label="Settings that differ" head=${["setting", ...arms.map(({ arm }) => arm)]}>
        <tbody>${differing.map(
          (name) =>
            html`<tr key=${name}><td>${name}</td>${arms.map(
              ({ arm, settings }) => html`<td key=${arm}>${name in settings && JSON.stringify(settings[name])}</td>`,
            )}</tr>`,
        )}</tbody>
      </${Table}></details>`
    }
  </${Panel}>`;
}

/** @param {ArmFigures} arm @param {string} name */
const lastPoint = (arm, name) => arm.curves[name]?.find((point) => point.iteration === arm.iteration);

/** @param {{ arm: ArmFigures, name: string }} props */
function Figure({ arm, name }) {
  const point = lastPoint(arm, name);
  if (!point) return null;
  const { interval } = point;
  const difference = arm.differences[name];
  return html`${(100 * point.mean).toFixed(1)}
    ${interval && html` (${(100 * interval.lo).toFixed(1)} to ${(100 * interval.hi).toFixed(1)})`}
    ${difference && html`<br /><${Change} difference=${difference} />`}`;
}

/** @param {{ difference: Difference }} props */
function Change({ difference: { value, over_seeds: seeds, over_questions: questions } }) {
  const p = [
    ["p", seeds?.p],
    ["sign test p", seeds?.sign_p],
  ].filter(([, value]) => typeof value === "number");
  return html`${points(value)}
    ${seeds && html` (${points(seeds.estimate.lo)} to ${points(seeds.estimate.hi)}, ${seeds.estimate.n} seeds)`}
    ${p.map(([name, value]) => html`, ${name} = ${Number(value).toPrecision(2)}`)}
    <br /><small>${points(questions.lo)} to ${points(questions.hi)}<br />over the choice of questions</small>`;
}
