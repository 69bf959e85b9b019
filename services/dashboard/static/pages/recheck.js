// What a judge says about an evaluation, beside what the grader says.
import { html } from "/static/preact.js";
import { humanise, number } from "../format.js";
import { Panel, Share } from "../parts.js";

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
    <div class="scroll" tabindex="0" role="region" aria-label="Accuracy by grader and judge"><table>
      <thead><tr><th scope="col">right by</th><th scope="col">pass@1</th><th scope="col">greedy</th></tr></thead>
      <tbody>${rows.map(
        ([name, accuracy]) => html`<tr key=${name}>
          <td>${name}</td>
          <td><${Share} estimate=${accuracy?.pass_at_1} /></td>
          <td><${Share} estimate=${accuracy?.greedy} /></td>
        </tr>`,
      )}</tbody>
    </table></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Disagreements of grader and judge"><table>
      <thead><tr><th scope="col">the grader says</th><th scope="col">the judge says otherwise</th></tr></thead>
      <tbody>${disagreements.map(
        ([name, estimate]) => html`<tr key=${name}><td>${name}</td><td><${Share} estimate=${estimate} /></td></tr>`,
      )}</tbody>
    </table></div>
  </${Panel}>`;
}
