// Lines of several runs in one chart: a figure by iteration or by step, of each run or of runs with another seed.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { IterationChart } from "../charts.js";
import { number, percent } from "../format.js";
import { Empty, Loading, Panel } from "../parts.js";
import { TABLE_HEAD, tableRows } from "../series.js";

/** @typedef {Schemas["ComparedFigure"]} ComparedFigure */
/** @typedef {Schemas["LabelledCurve"]} Curve */

const POLL_MS = 60_000; // the runs may be at work

/**
 * Chooses the figures that are drawn beside the usual ones. They are part of the address.
 *
 * @param {{
 *   figures: ComparedFigure[], chosen: string[], by: string, change: (changes: Record<string, string[]>) => void,
 * }} props
 */
export function SeriesPicker({ figures, chosen, by, change }) {
  const others = figures.filter(({ name, by_iteration }) => !chosen.includes(name) && (by_iteration || by === "step"));
  /** @param {EventOn<HTMLSelectElement>} event */
  function add(event) {
    change({ series: [...chosen, event.target.value] });
    event.target.value = "";
  }
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
    <label>Add a series <select value="" onChange=${add}>
      <option value="">choose…</option>
      ${others.map((figure) => html`<option key=${figure.name} value=${figure.name}>${figure.name}${unitOf(figure) && ` (${unitOf(figure)})`}</option>`)}
    </select></label>
    <label>Added series by <select value=${by} onChange=${(event) => change({ by: event.target.value === "step" ? ["step"] : [] })}>
      <option value="iteration">iteration</option><option value="step">training step</option>
    </select></label>
    ${chosen.map((name) => html`<button key=${name} type="button" class="quiet" onClick=${() => change({ series: chosen.filter((other) => other !== name) })}>Remove ${name}</button>`)}
  </form>`;
}

/** The unit that is shown; a share is drawn in percent. @param {ComparedFigure} figure */
const unitOf = ({ unit }) => (unit === "ratio" ? "" : unit);

/** @param {{ figure: ComparedFigure, names: string[], colours: string[], by: string, grouped: boolean }} props */
export function AddedSeries({ figure, names, colours, by, grouped }) {
  const parameters = { name: figure.name, by, grouped };
  const about = `${figure.text}.${unitOf(figure) && ` In ${unitOf(figure)}.`}`;
  return html`<${CurvePanel} title=${figure.name} about=${about} names=${names} colours=${colours} parameters=${parameters} share=${figure.unit === "ratio"} unit=${unitOf(figure)} />`;
}

/**
 * @param {{
 *   title: string,
 *   about: string,
 *   names: string[],
 *   colours: string[],
 *   parameters: { name: string, by?: string, grouped?: boolean, oracle?: string | null },
 *   share: boolean,
 *   unit?: string,
 * }} props `names` are the runs, each with its colour; `parameters` are those of the API
 */
export function CurvePanel({ title, about, names, colours, parameters, share, unit = "" }) {
  const { data, error } = useResponse("/comparison/series", { run: names, ...parameters }, POLL_MS);
  const axis = parameters.by ?? "iteration";
  const lines = (data ?? []).map((curve) => ({
    name: nameOf(curve),
    colour: colours[names.indexOf(curve.runs[0])],
    points: curve.points.map(({ x, ...point }) => ({ ...point, iteration: x })),
  }));
  const table = {
    head: TABLE_HEAD.map((head) => (head === "iteration" ? axis : head)),
    rows: tableRows(lines, share ? percent : number),
  };
  return html`<${Panel} title=${title} about=${about} table=${table}>
    <${Loading} data=${data} error=${error}>
      ${lines.length ? html`<${IterationChart} lines=${lines} share=${share} unit=${unit} axis=${axis} label=${title} />` : html`<${Empty}>None of these runs has this figure.</${Empty}>`}
    </${Loading}>
  </${Panel}>`;
}

/** @param {Curve} curve */
const nameOf = ({ label, runs }) => (runs.length > 1 ? `${label}, mean of ${runs.length} runs` : label);
