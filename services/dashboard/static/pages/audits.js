// What `coevo audit show` shows: who was asked of what, how far to trust what is estimated, and who agrees with whom.
import { html } from "/static/preact.js";
import { number, words } from "../format.js";
import { Panel, Share } from "../parts.js";

/** What a figure of label accuracy rests on; without it a sample looks like all, and an estimate like either. */
export function frameOf({ frame, figure, population, over }) {
  const kept = over === "kept" ? " kept" : "";
  if (frame === null) return "estimate from p̂";
  if (frame === "sample") return `a sample: ${number(figure.n)} of ${number(population)}${kept}`;
  return figure.n < population ? `${number(figure.n)} of all ${number(population)}${kept} so far` : `all ${number(population)}${kept}`;
}

/** The frame of what one oracle measured in an iteration, once the audits are known; an estimate says so itself. */
export function frameAt(audits, { iteration, oracle, over }) {
  const same = (each) => each.iteration === iteration && each.oracle === oracle && each.over === over;
  const found = audits?.measured.find(same);
  return found ? frameOf(found) : null;
}

/** Nothing where nothing was audited. */
export function Audits({ audits, place }) {
  const figures = audits ? [...audits.measured, ...audits.estimated] : [];
  if (figures.length === 0) return null;
  const { checks, oracles, annotators } = audits;
  return html`<${Panel} title="Audits" wide id="audits" about="Who was asked, and of what. Different oracles err differently: one is compared with itself only.">
    <div class="audits">
      <${Figures} figures=${figures} place=${place} />
      <div>
        ${checks.length > 0 && html`<h3>Whether to trust the estimates from p̂</h3><ul class="remarks">${checks.map((check) => html`<${Check} key=${`${check.oracle}/${check.over}`} check=${check} />`)}</ul>`}
        ${checks.length === 0 && audits.estimated.length > 0 && html`<h3>Whether to trust the estimates from p̂</h3><p class="about">It cannot be told before two iterations are audited.</p>`}
        <${Kappas} title="How far oracles agree" pairs=${oracles} />
        <${Kappas} title="How far annotators agree" pairs=${annotators} />
        ${oracles.length + annotators.length > 0 && html`<p class="about">κ is Cohen's: 1 is complete agreement, 0 is what chance would give.</p>`}
      </div>
    </div>
  </${Panel}>`;
}

const inOrder = (a, b) => a.oracle.localeCompare(b.oracle) || b.over.localeCompare(a.over) || a.iteration - b.iteration;

function Figures({ figures, place }) {
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label="Label accuracy by oracle">
    <table>
      <caption class="sr">Label accuracy by oracle, questions and iteration, and what each figure rests on</caption>
      <thead><tr><th scope="col">by</th><th scope="col">over</th><th scope="col"><abbr title="iteration">t</abbr></th><th scope="col">label accuracy</th><th scope="col">asked of</th></tr></thead>
      <tbody>${figures.sort(inOrder).map((each) => html`<tr key=${`${each.oracle}/${each.over}/${each.iteration}`}>
        <td>${words(each.oracle)}</td><td>${each.over}</td>
        <th scope="row"><a href=${`${place}/${each.iteration}`}><span class="sr">iteration </span>${each.iteration}</a></th>
        <td><${Share} estimate=${{ ...each.figure, estimated: each.frame === null }} /></td><td>${frameOf(each)}</td>
      </tr>`)}</tbody>
    </table>
  </div>`;
}

const points = (share) => (100 * share).toFixed(1);

function Check({ check }) {
  const { oracle, over, error, bias, held, folds } = check;
  const leaning = Number(points(bias)) === 0 ? "without leaning either way" : `${points(Math.abs(bias))} too ${bias > 0 ? "high" : "low"} on the whole`;
  return html`<li><b>${words(oracle)}, ${over}:</b> each audited iteration, estimated from the others, is off by ${points(error)} points on average, ${leaning}; the interval held ${held} of ${folds.length}.</li>`;
}

function Kappas({ title, pairs }) {
  if (pairs.length === 0) return null;
  return html`<h3>${title}</h3>
    <dl class="pairs kappas">${pairs.map(({ first, second, kappa }) => html`<dt key=${`${first}/${second}`}>${words(first)} and ${words(second)}</dt>
      <dd>${kappa ? html`κ <b>${kappa.value.toFixed(2)}</b> <small>${kappa.lo.toFixed(2)} to ${kappa.hi.toFixed(2)} · n ${number(kappa.n)}</small>` : html`<small>cannot be told: both say the same of everything</small>`}</dd>`)}</dl>`;
}
