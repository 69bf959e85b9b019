// The panel of a run's audits, with the same content as `coevo show labels`: the figures of each oracle and the
// questions that they are based on, the reliability of the estimates, and the agreement between oracles and between
// annotators.
import { html } from "/static/preact.js";
import { humanise, number } from "../format.js";
import { Panel, Share, Table } from "../parts.js";

/** @typedef {Schemas["Accuracy"]} Accuracy */
/** @typedef {Schemas["RunAudits"]} RunAudits */

/**
 * The questions that a figure of label accuracy is based on. It is always shown beside the figure, which otherwise does
 * not tell whether it comes from a sample, from all questions, or from an estimate.
 *
 * @param {Accuracy} accuracy
 */
export function basisOf({ frame, figure, population, over }) {
  const kept = over === "kept" ? " kept" : "";
  if (frame === null) return "estimate from p̂";
  if (frame === "sample") return `a sample: ${number(figure.n)} of ${number(population)}${kept}`;
  return figure.n < population
    ? `${number(figure.n)} of all ${number(population)}${kept} so far`
    : `all ${number(population)}${kept}`;
}

/**
 * The basis of what one oracle measured in one iteration; null if the audits have not been loaded yet, and for an
 * estimate, which is marked as one anyway.
 *
 * @param {RunAudits | null} audits
 * @param {{ iteration: number, oracle: string, over: string }} point
 */
export function basisOfPoint(audits, { iteration, oracle, over }) {
  const accuracy = audits?.measured.find(
    (measured) => measured.iteration === iteration && measured.oracle === oracle && measured.over === over,
  );
  return accuracy ? basisOf(accuracy) : null;
}

/** Shows nothing if nothing was audited. @param {{ audits: RunAudits | null, url: string }} props `url` is the run's */
export function Audits({ audits, url }) {
  if (!audits) return null;
  const figures = [...audits.measured, ...audits.estimated];
  if (figures.length === 0) return null;
  const { checks, estimated, oracles, annotators } = audits;
  /** Whether it comes from the audits of a single iteration. @param {Accuracy} estimate */
  const isUnchecked = ({ oracle, over }) => !checks.some((check) => check.oracle === oracle && check.over === over);
  return html`<${Panel} title="Audits" wide id="audits" about="Label accuracy by each oracle, and the questions that it graded. Oracles make different errors, so compare an oracle only with itself.">
    <div class="audits">
      <${Figures} figures=${figures} url=${url} />
      <div>
        ${(checks.length > 0 || estimated.length > 0) && html`<h3>Reliability of the estimates from p̂</h3>`}
        ${checks.length > 0 && html`<ul class="remarks">${checks.map((check) => html`<${Check} key=${`${check.oracle}/${check.over}`} check=${check} />`)}</ul>`}
        ${estimated.some(isUnchecked) && html`<p class="about">Where an oracle has audited one iteration only, the estimates are calibrated on that one, and their intervals are too narrow. They can be checked once two iterations have been audited.</p>`}
        <${Agreements} title="Agreement between oracles" pairs=${oracles} />
        <${Agreements} title="Agreement between annotators" pairs=${annotators} />
        ${oracles.length + annotators.length > 0 && html`<p class="about">κ is Cohen's kappa: 1 is complete agreement, 0 is the agreement that is expected by chance.</p>`}
      </div>
    </div>
  </${Panel}>`;
}

/** @param {Accuracy} a @param {Accuracy} b */
const byOracleAndIteration = (a, b) =>
  a.oracle.localeCompare(b.oracle) || b.over.localeCompare(a.over) || b.iteration - a.iteration;

/** @param {{ figures: Accuracy[], url: string }} props */
function Figures({ figures, url }) {
  const sorted = [...figures].sort(byOracleAndIteration);
  const t = html`<abbr title="iteration">t</abbr>`;
  return html`<${Table} label="Label accuracy by oracle" tall head=${["oracle", "questions", t, "label accuracy", "based on"]}>
    <tbody>${sorted.map((accuracy) => html`<${FigureRow} key=${`${accuracy.oracle}/${accuracy.over}/${accuracy.iteration}`} accuracy=${accuracy} url=${url} />`)}</tbody>
  </${Table}>`;
}

/** @param {{ accuracy: Accuracy, url: string }} props */
function FigureRow({ accuracy, url }) {
  const { oracle, over, iteration, figure, frame } = accuracy;
  return html`<tr>
    <td>${humanise(oracle)}</td><td>${over}</td>
    <th scope="row"><a href=${`${url}/${iteration}`}><span class="sr">iteration </span>${iteration}</a></th>
    <td><${Share} estimate=${{ ...figure, estimated: frame === null }} /></td><td>${basisOf(accuracy)}</td>
  </tr>`;
}

/** A share in percentage points. @param {number} share */
const points = (share) => (100 * share).toFixed(1);

/** @param {{ check: Schemas["EstimateCheck"] }} props */
function Check({ check }) {
  const { oracle, over, error, covered, folds } = check;
  return html`<li><b>${humanise(oracle)}, ${over}:</b> each audited iteration was also estimated from the other ones. The estimates were off by ${points(error)} percentage points on average. Their interval contained the measured value in ${covered} of ${folds.length} iterations.</li>`;
}

/** Cohen's kappa of pairs of oracles or annotators. @param {{ title: string, pairs: Schemas["Agreement"][] }} props */
function Agreements({ title, pairs }) {
  if (pairs.length === 0) return null;
  return html`<h3>${title}</h3>
    <dl class="pairs kappas">${pairs.map((pair) => html`<${Pair} key=${`${pair.first}/${pair.second}`} ...${pair} />`)}</dl>`;
}

/** @param {Schemas["Agreement"]} props */
function Pair({ first, second, kappa }) {
  return html`<dt>${humanise(first)} and ${humanise(second)}</dt>
    <dd>${kappa ? html`κ <b>${kappa.value.toFixed(2)}</b> <small>${kappa.lo.toFixed(2)} to ${kappa.hi.toFixed(2)} · n ${number(kappa.n)}</small>` : html`<small>undefined: both gave one and the same verdict on every question</small>`}</dd>`;
}
