// The table of the latest figures of compared runs, beside those of their best iteration, and the baseline.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { humanise, number, percent, points } from "../format.js";
import { Loading, Panel, Status, Table } from "../parts.js";
import { runUrl } from "../router.js";

/** @typedef {Schemas["LatestFigure"]} LatestFigure */
/** @typedef {{ name: string, title: string, share: boolean, oracle?: string | null }} Figure */

const POLL_MS = 60_000;

/**
 * @param {{
 *   runs: { name: string, detail: Schemas["RunWithConfig"], method: string }[],
 *   figures: Figure[],
 *   baseline: string | null,
 *   oracle: string | null,
 * }} props
 */
export function LatestFigures({ runs, figures, baseline, oracle }) {
  const { data, error } = useResponse(
    "/comparison/latest",
    { run: runs.map(({ name }) => name), name: figures.map(({ name }) => name), baseline, oracle },
    POLL_MS,
  );
  const difference = baseline
    ? ` The third line is the difference to ${baseline}: of accuracy on a benchmark on the same questions, of any other figure as if the runs were independent. Its interval is of these two trainings and says nothing about another.`
    : "";
  const about = `The first line is the last iteration, the second the one with the highest accuracy on the benchmark, if that is another.${difference}`;
  const head = ["run", "method", "state", ...figures.map(({ title }) => title)];
  return html`<${Panel} title="Latest figures" wide about=${about}>
    <${Loading} data=${data} error=${error}><${Table} label="Latest figures" class="latest" head=${head}>
      <tbody>${runs.map(({ name, detail, method }) => {
        const latest = data?.find(({ run }) => run === name);
        return html`<tr key=${name}>
          <th scope="row"><a href=${runUrl(name)}>${name}</a>${name === baseline && html` <small>baseline</small>`}</th><td>${method}</td><td><${Status} status=${detail.state} /></td>
          ${figures.map((figure) => html`<td key=${figure.name}><${Cell} figure=${latest?.figures.find((other) => other.name === figure.name)} share=${figure.share} oracle=${figure.oracle ?? null} /></td>`)}
        </tr>`;
      })}</tbody>
    </${Table}></${Loading}>
  </${Panel}>`;
}

/** @param {{ figure?: LatestFigure, share: boolean, oracle: string | null }} props */
function Cell({ figure, share, oracle }) {
  if (!figure) return html`<span class="none">${oracle ? `not audited by ${humanise(oracle)}` : "–"}</span>`;
  const { last, best, difference } = figure;
  return html`<${Value} point=${last} share=${share} note=${`iteration ${last.x}`} />
    ${best && best.x !== last.x && html`<br /><${Value} point=${best} share=${share} note=${`best, iteration ${best.x}`} />`}
    ${difference && html`<br /><${Value} point=${difference} share=${share} isDifference note="to the baseline" />`}`;
}

/** @param {{ point: Schemas["ValueAt"], share: boolean, note: string, isDifference?: boolean }} props */
function Value({ point: { value, lo, hi, n }, share, note, isDifference = false }) {
  const inPoints = share && isDifference;
  const format = inPoints ? points : share ? percent : number;
  const sign = isDifference && !share && value > 0 ? "+" : "";
  const interval = lo === null ? "no interval" : `${format(lo)} to ${format(hi)} · n ${number(n)}`;
  return html`<span class="share"><b>${sign}${format(value)}${inPoints && " points"}</b> <small>${interval} · ${note}</small></span>`;
}
