// Charts, drawn by Observable Plot as SVG. They use the page's colours, and a point or a bar may be a link.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { report } from "./api.js";
import { MARGIN, verticalAxis } from "./axes.js";
import { countOf, humanise, number, percent } from "./format.js";
import { Legend } from "./parts.js";

/**
 * A point of a figure over the iterations. `lo` and `hi` are its 95% interval, if it has one.
 *
 * @typedef {{
 *   iteration: number,
 *   value: number,
 *   lo?: number | null,
 *   hi?: number | null,
 *   n: number | null,
 *   estimated?: boolean,
 *   inherited_from?: string | null,
 *   href?: string,
 * }} ChartPoint
 */
/** @typedef {{ name: string, colour: string, dash?: string, points: ChartPoint[] }} ChartLine */

/**
 * Makes a chart readable for screen readers. Plot labels each group of marks with a technical name, such as "dot"; the
 * name is moved to `data-marks`, which app.css uses. Each link is labelled with its tooltip instead; a report has none.
 *
 * @param {Element} chart
 */
function labelForScreenReaders(chart) {
  for (const group of chart.querySelectorAll("g[aria-label]")) {
    group.setAttribute("data-marks", group.getAttribute("aria-label") ?? "");
    group.removeAttribute("aria-label");
  }
  for (const link of chart.querySelectorAll("a")) {
    if (report) link.replaceWith(...link.childNodes);
    else link.setAttribute("aria-label", link.querySelector("title")?.textContent ?? "");
  }
}

/**
 * A chart as wide as its container. `draw(width)` is called again when `data` or the width changes.
 *
 * @param {{ draw: (width: number) => Element, data: unknown, label: string }} props
 */
export function Chart({ draw, data, label }) {
  const container = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    if (container.current) {
      setWidth(container.current.clientWidth); // at once: who prints the page does not wait for the observer
      observer.observe(container.current);
    }
    return () => observer.disconnect();
  }, []);
  const key = JSON.stringify(data);
  useEffect(() => {
    if (!width) return;
    const chart = draw(width);
    labelForScreenReaders(chart);
    chart.setAttribute("aria-label", label);
    chart.setAttribute("role", "group");
    container.current?.replaceChildren(chart);
  }, [key, width, label]);
  return html`<div class="picture" ref=${container}></div>`;
}

/** A point's value with the ends of its interval. @param {{ value: number, lo?: number | null, hi?: number | null }} point */
export const valuesOf = ({ value, lo, hi }) => [value, lo ?? value, hi ?? value];

/** @param {ChartPoint} point */
const hasInterval = (point) => point.lo !== null && point.lo !== undefined;

/**
 * The tooltip of a point.
 *
 * @param {ChartPoint & { name: string }} point
 * @param {boolean} isShare
 * @param {string} unit
 * @param {string} axis
 */
function pointTitle(point, isShare, unit, axis) {
  const format = isShare ? percent : number;
  const lines = [
    `${point.name}, ${axis} ${point.iteration}`,
    isShare ? percent(point.value) : `${number(point.value, 4)} ${unit}`,
    hasInterval(point) ? `95%: ${format(point.lo)} to ${format(point.hi)}` : "",
    point.n === null ? "" : countOf({ ...point, n: point.n }),
    point.inherited_from ? `inherited from ${point.inherited_from}` : "",
  ];
  return lines.filter(Boolean).join("\n");
}

/** @param {{ estimated?: boolean }} point */
const isMeasured = (point) => !point.estimated;

/** @param {string | undefined} dash */
const isDashed = (dash) => dash !== undefined && dash !== "none";

/** The points of a solid line, and of a dashed one. */
const SYMBOLS = ["circle", "diamond"];

/**
 * A figure over the iterations: one line for each series, each with its 95% band. Estimated points are hollow, and line
 * and band leave them out, because an estimate may miss a fall. Those that the run has inherited are pale. The points of
 * a dashed line are diamonds, so that points far from their line can be told apart.
 *
 * @param {{
 *   lines: ChartLine[], label: string, share?: boolean, height?: number, unit?: string, axis?: string, legend?: boolean,
 * }} props with `share` the vertical axis is in percent; `axis` names the horizontal one, "iteration" or "step"
 */
export function IterationChart({
  lines,
  label,
  share = true,
  height = 260,
  unit = "",
  axis = "iteration",
  legend = true,
}) {
  const points = lines.flatMap(({ name, colour, dash, points }) => {
    const symbol = SYMBOLS[isDashed(dash) ? 1 : 0];
    return points.map((point) => ({ ...point, name, colour, symbol }));
  });
  /** @param {number} width */
  const draw = (width) => {
    const iterations = [...new Set(points.map((point) => point.iteration))].sort((a, b) => a - b);
    const first = iterations[0] ?? 0;
    const last = Math.max(iterations.at(-1) ?? 1, first + 1);
    const pointsWithInterval = points.filter(hasInterval);
    const values = points.flatMap(valuesOf);
    const channels = { x: "iteration", y: "value", z: "name", stroke: "colour" };
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      ...verticalAxis(values, share, 5),
      x: {
        label: axis,
        ticks: iterations.length > 12 ? 8 : iterations,
        tickFormat: "d",
        inset: 14,
        domain: [first, last],
      },
      color: { type: "identity" },
      symbol: { domain: SYMBOLS, range: SYMBOLS },
      marks: [
        Plot.areaY(pointsWithInterval.filter(isMeasured), {
          x: "iteration",
          y1: "lo",
          y2: "hi",
          z: "name",
          fill: "colour",
          fillOpacity: 0.13,
        }),
        Plot.ruleX(pointsWithInterval, { x: "iteration", y1: "lo", y2: "hi", stroke: "colour", strokeOpacity: 0.45 }),
        ...lines.map((line) =>
          Plot.lineY(
            points.filter((point) => point.name === line.name && isMeasured(point)),
            { ...channels, stroke: line.colour, strokeWidth: 2, strokeDasharray: line.dash ?? "none" },
          ),
        ),
        Plot.dot(points, {
          ...channels,
          r: axis === "step" ? 1.5 : 4.5,
          symbol: "symbol",
          fill: (point) => (point.estimated ? "var(--paper)" : point.colour),
          fillOpacity: (point) => (point.inherited_from ? 0.25 : 1),
          strokeOpacity: (point) => (point.inherited_from ? 0.5 : 1),
          strokeWidth: 2,
          href: (point) => point.href ?? null,
          title: (point) => pointTitle(point, share, unit, axis),
        }),
      ],
    });
  };
  return html`<${Chart} draw=${draw} data=${[lines, share, axis]} label=${label} />
    ${legend && html`<${Legend} items=${lines.map(({ name, colour, dash }) => [name, colour, isDashed(dash)])} />`}`;
}

/** @typedef {Schemas["Estimate"] & { name: string, x: number, colour: string }} CurveChartPoint */

/**
 * Shares over a number, each curve with its 95% band.
 *
 * @param {{
 *   points: CurveChartPoint[],
 *   axis: { label: string, isLog?: boolean },
 *   label: string,
 * }} props `axis` is the horizontal one
 */
export function CurveChart({ points, axis, label }) {
  const ticks = [...new Set(points.map(({ x }) => x))];
  /** @param {number} width */
  const draw = (width) =>
    Plot.plot({
      width,
      height: 260,
      ...MARGIN,
      ...verticalAxis(points.flatMap(valuesOf), true, 5),
      x: {
        label: axis.label,
        inset: 14,
        ...(axis.isLog ? { type: "log", base: 2, ticks, tickFormat: "d" } : { ticks: 6 }),
      },
      color: { type: "identity" },
      marks: [
        Plot.areaY(points, { x: "x", y1: "lo", y2: "hi", z: "name", fill: "colour", fillOpacity: 0.13 }),
        Plot.lineY(points, { x: "x", y: "value", z: "name", stroke: "colour", strokeWidth: 2 }),
        Plot.dot(points, {
          x: "x",
          y: "value",
          fill: "colour",
          r: 4.5,
          title: ({ name, x, value, lo, hi, n }) =>
            [
              `${name}, ${axis.label} = ${x}`,
              percent(value),
              `95%: ${percent(lo)} to ${percent(hi)}`,
              `n ${number(n)}`,
            ].join("\n"),
        }),
      ],
    });
  return html`<${Chart} draw=${draw} data=${points} label=${label} />`;
}

/**
 * The number of questions by p_hat, coloured by verdict, in front of the band that is kept. Each bar is a link.
 *
 * @param {{
 *   bins: Schemas["Bin"][],
 *   band: [number, number] | null,
 *   m: number,
 *   hrefOf: (bin: Schemas["Bin"]) => string,
 *   label: string,
 *   height?: number,
 * }} props `m` is the number of votes for each question
 */
export function Histogram({ bins, band, m, hrefOf, label, height = 240 }) {
  /** @param {number} width */
  const draw = (width) => {
    const halfWidth = 0.4 / Math.max(m, 1);
    const bars = bins.map((bin) => ({
      ...bin,
      from: bin.p_hat - halfWidth,
      to: bin.p_hat + halfWidth,
      colour: `var(--v-${bin.verdict})`,
    }));
    // The band is drawn wide enough to contain the whole bars of the questions in it.
    const barsInBand = band ? bars.filter((bar) => bar.p_hat >= band[0] && bar.p_hat <= band[1]) : [];
    const drawnBand = band && [
      Math.min(band[0], ...barsInBand.map((bar) => bar.from)),
      Math.max(band[1], ...barsInBand.map((bar) => bar.to)),
    ];
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      x: {
        label: "p̂",
        domain: [-halfWidth - 0.01, 1 + halfWidth + 0.01],
        ticks: 5,
        tickFormat: (/** @type {number} */ value) => value.toFixed(1),
      },
      y: { label: null, grid: true, nice: true, ticks: 5 },
      color: { type: "identity" },
      marks: [
        drawnBand ? Plot.rectX([drawnBand], { x1: "0", x2: "1", fill: "var(--band)" }) : null,
        Plot.rectY(
          bars,
          Plot.stackY({
            x1: "from",
            x2: "to",
            y: "questions",
            fill: "colour",
            rx: 1,
            href: hrefOf,
            title: (/** @type {Schemas["Bin"]} */ bin) =>
              `p̂ = ${number(bin.p_hat)}, ${humanise(bin.verdict)}\n${number(bin.questions)} questions`,
          }),
        ),
        Plot.ruleY([0], { stroke: "var(--line)" }),
      ],
    });
  };
  return html`<${Chart} draw=${draw} data=${[bins, band, m, bins.map(hrefOf)]} label=${label} />`;
}

/**
 * The verdicts on each iteration's questions, as shares of all its questions.
 *
 * @typedef {{ iteration: number, verdict: string, questions: number, share: number, href: string }} VerdictShare
 * @param {{ rows: VerdictShare[], label: string, height?: number }} props
 */
export function VerdictChart({ rows, label, height = 220 }) {
  /** @param {number} width */
  const draw = (width) =>
    Plot.plot({
      width,
      height,
      ...MARGIN,
      x: { label: "iteration", type: "band", padding: 0.35 },
      y: {
        label: null,
        ticks: 5,
        grid: true,
        tickFormat: (/** @type {number} */ value) => `${Math.round(100 * value)}%`,
      },
      color: { type: "identity" },
      marks: [
        Plot.barY(
          rows,
          Plot.stackY({
            x: "iteration",
            y: "share",
            fill: (/** @type {VerdictShare} */ row) => `var(--v-${row.verdict})`,
            href: "href",
            title: (/** @type {VerdictShare} */ row) =>
              `iteration ${row.iteration}, ${humanise(row.verdict)}\n${number(row.questions)} questions, ${percent(row.share)}`,
          }),
        ),
      ],
    });
  return html`<${Chart} draw=${draw} data=${rows} label=${label} />`;
}
