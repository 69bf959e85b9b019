// The chart of a figure over the steps of trainings.
import { html } from "/static/preact.js";
import { MARGIN, verticalAxis } from "./axes.js";
import { Chart, valuesOf } from "./charts.js";
import { number, percent } from "./format.js";

/** @typedef {{ iteration: number, step: number, value: number, lo?: number, hi?: number, n?: number }} StepPoint */

/**
 * A figure over the steps of the trainings: one line for each iteration, stronger for later ones, with a band where the
 * points have an interval.
 *
 * @param {{
 *   points: StepPoint[],
 *   label: string,
 *   share?: boolean,
 *   height?: number,
 *   hrefOf?: (point: StepPoint) => string,
 * }} props with `share` the axis is in percent; `hrefOf` is where a click on a point leads
 */
export function StepChart({ points, label, share = false, height = 170, hrefOf }) {
  /** @param {number} width */
  const draw = (width) => {
    const lastIteration = Math.max(1, ...points.map((point) => point.iteration));
    const steps = points.map((point) => point.step);
    const ticks = d3.ticks(Math.min(...steps), Math.max(...steps), 4).filter(Number.isInteger);
    /** Whether the point has no line, since its iteration has no other. @param {StepPoint} point */
    const isAlone = ({ iteration, step }) =>
      !points.some((other) => other.iteration === iteration && other.step !== step);
    /** @param {StepPoint} point */
    const colour = (point) => {
      const late = Math.round((100 * point.iteration) / lastIteration);
      return `color-mix(in oklab, var(--early), var(--late) ${late}%)`;
    };
    /** @param {number | undefined} value */
    const format = (value) => (share ? percent(value) : number(value, 4));
    /** @param {StepPoint} point */
    const title = (point) => {
      const estimate =
        point.lo === undefined ? "" : `\n95%: ${format(point.lo)} to ${format(point.hi)}\nn ${number(point.n)}`;
      return `iteration ${point.iteration}, step ${point.step}\n${format(point.value)}${estimate}`;
    };
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      ...verticalAxis(points.flatMap(valuesOf), share, 4),
      marginBottom: 30,
      x: { label: "step", ticks, tickFormat: "d" },
      color: { type: "identity" },
      marks: [
        Plot.areaY(
          points.filter((point) => point.lo !== undefined),
          { x: "step", y1: "lo", y2: "hi", z: "iteration", fill: colour, fillOpacity: 0.13 },
        ),
        Plot.lineY(points, { x: "step", y: "value", z: "iteration", stroke: colour, strokeWidth: 1.8 }),
        Plot.dot(points.filter(isAlone), { x: "step", y: "value", r: 3, fill: colour }),
        Plot.dot(points, { x: "step", y: "value", r: 6, fill: "transparent", title, href: hrefOf }),
      ],
    });
  };
  return html`<${Chart} draw=${draw} data=${[points, share]} label=${label} />`;
}
