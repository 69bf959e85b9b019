// What a judge says about an evaluation, beside what the grader says.
import { html } from "/static/preact.js";
import { humanise, number } from "../format.js";
import { Panel, Share, Table } from "../parts.js";

/** @param {{ recheck: Schemas["Recheck"], figures: Schemas["EvaluationFigures"] }} props */
export function Recheck({ recheck, figures }) {
  const { judge, answers, judged, unclear, failures_rechecked, judge_alone } = recheck;
  const rows = /** @type {const} */ ([
    ["the grader", figures],
    ["the grader or the judge", failures_rechecked],
    ["the judge alone", judge_alone],
  ]);
  const disagreements = /** @type {const} */ ([
    ["right", recheck.passes_called_wrong],
    ["wrong", recheck.failures_called_right],
    ["either", recheck.disagreements],
  ]);
  const about = `${number(judged)} of ${number(answers)} different answers were judged, ${number(unclear)} of them without a clear verdict; these keep the grader's.`;
  return html`<${Panel} title=${`Rechecked by ${humanise(judge)}`} about=${about}>
    <${Table} label="Accuracy by grader and judge" head=${["right by", "pass@1", "greedy"]}>
      <tbody>${rows.map(
        ([name, accuracy]) => html`<tr key=${name}>
          <td>${name}</td>
          <td><${Share} estimate=${accuracy?.pass_at_1} /></td>
          <td><${Share} estimate=${accuracy?.greedy} /></td>
        </tr>`,
      )}</tbody>
    </${Table}>
    <${Table} label="Disagreements of grader and judge" head=${["the grader says", "the judge says otherwise"]}>
      <tbody>${disagreements.map(
        ([name, estimate]) => html`<tr key=${name}><td>${name}</td><td><${Share} estimate=${estimate} /></td></tr>`,
      )}</tbody>
    </${Table}>
  </${Panel}>`;
}
