// Pictures, drawn by Observable Plot as SVG: their colours are the page's, their points are links, their text is text.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { number, percent } from "./format.js";

const MARGIN = { marginLeft: 48, marginRight: 16, marginTop: 14, marginBottom: 34 };

/** Plot names its groups of marks for programmers: what is read aloud are the links, each by its title. */
function readable(picture) {
  for (const group of picture.querySelectorAll("g[aria-label]")) {
    group.dataset.marks = group.getAttribute("aria-label");
    group.removeAttribute("aria-label");
  }
  for (const link of picture.querySelectorAll("a")) link.setAttribute("aria-label", link.querySelector("title")?.textContent ?? "");
  return picture;
}

/** A picture as wide as its place; `draw(width)` gives it, and is called again when `of` or the width changes. */
export function Picture({ draw, of, label }) {
  const place = useRef();
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  const key = JSON.stringify(of);
  useEffect(() => {
    if (!width) return;
    const picture = readable(draw(width));
    picture.setAttribute("aria-label", label);
    picture.setAttribute("role", "group");
    place.current.replaceChildren(picture);
  }, [key, width, label]);
  return html`<div class="picture" ref=${place}></div>`;
}

/** Percents on an axis, with as many digits as tell its ticks apart. */
function percents(values) {
  const span = Math.max(...values) - Math.min(...values);
  const digits = span > 0.04 || span === 0 ? 0 : span > 0.004 ? 1 : 2;
  return (value) => percent(value, digits);
}

const iterations = (points) => [...new Set(points.map((point) => point.iteration))].sort((a, b) => a - b);

/** A figure over the iterations, a line for each series, with the 95% band of each: `lines` of {name, colour, points}.
 *
 * A point is {iteration, value, lo, hi, n, href, estimated}: an estimate is hollow. `share` writes the axis in percent.
 */
export function Course({ lines, label, share = true, height = 260, unit = "" }) {
  const points = lines.flatMap((line) =>
    line.points.map((point) => ({ ...point, name: line.name, colour: line.colour, dash: line.dash ?? "none" })),
  );
  const draw = (width) => {
    const at = iterations(points);
    const sure = points.filter((point) => point.lo !== null && point.lo !== undefined);
    const say = (point) =>
      [
        `${point.name}, iteration ${point.iteration}`,
        share ? percent(point.value) : `${number(point.value, 4)} ${unit}`,
        point.lo === null || point.lo === undefined
          ? ""
          : share
            ? `95%: ${percent(point.lo)} to ${percent(point.hi)}`
            : `95%: ${number(point.lo)} to ${number(point.hi)}`,
        `n ${number(point.n)}${point.estimated ? ", estimated" : ""}`,
      ]
        .filter(Boolean)
        .join("\n");
    const channels = { x: "iteration", y: "value", z: "name", stroke: "colour" };
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      x: { label: "iteration", ticks: at.length > 12 ? 8 : at, tickFormat: "d", inset: 14, domain: [at[0] ?? 0, Math.max(at.at(-1) ?? 1, (at[0] ?? 0) + 1)] },
      y: { label: null, grid: true, nice: true, ticks: 5, tickFormat: share ? percents(points.flatMap((point) => [point.value, point.lo ?? point.value, point.hi ?? point.value])) : undefined },
      color: { type: "identity" },
      marks: [
        Plot.areaY(sure, { x: "iteration", y1: "lo", y2: "hi", z: "name", fill: "colour", fillOpacity: 0.13 }),
        Plot.ruleX(sure, { x: "iteration", y1: "lo", y2: "hi", stroke: "colour", strokeOpacity: 0.45 }),
        ...lines.map((line) =>
          Plot.lineY(points.filter((point) => point.name === line.name), { ...channels, stroke: line.colour, strokeWidth: 2, strokeDasharray: line.dash ?? "none" }),
        ),
        Plot.dot(points, { ...channels, r: 4.5, fill: (point) => (point.estimated ? "var(--paper)" : point.colour), strokeWidth: 2, href: (point) => point.href ?? null, title: say }),
      ],
    });
  };
  return html`<${Picture} draw=${draw} of=${[lines, share]} label=${label} />`;
}

/** Questions by p_hat, coloured by verdict, before the band that is kept; a bar is a link. */
export function Histogram({ bins, band, m, hrefOf, label, height = 240 }) {
  const draw = (width) => {
    const half = 0.4 / Math.max(m, 1);
    const places = band ? bins.map((bin) => bin.p_hat).filter((p) => p >= band[0] && p <= band[1]) : [];
    const kept = band && [Math.min(band[0], ...places.map((p) => p - half)), Math.max(band[1], ...places.map((p) => p + half))];
    const bars = bins.map((bin) => ({ ...bin, from: bin.p_hat - half, to: bin.p_hat + half, colour: `var(--v-${bin.verdict})` }));
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      x: { label: "p̂", domain: [-half - 0.01, 1 + half + 0.01], ticks: 5, tickFormat: (value) => value.toFixed(1) },
      y: { label: null, grid: true, nice: true, ticks: 5 },
      color: { type: "identity" },
      marks: [
        kept ? Plot.rectX([kept], { x1: "0", x2: "1", fill: "var(--band)" }) : null,
        Plot.rectY(
          bars,
          Plot.stackY({
            x1: "from",
            x2: "to",
            y: "questions",
            fill: "colour",
            rx: 1,
            href: (bin) => hrefOf(bin),
            title: (bin) => `p̂ = ${number(bin.p_hat)}, ${bin.verdict.replaceAll("_", " ")}\n${number(bin.questions)} questions`,
          }),
        ),
        Plot.ruleY([0], { stroke: "var(--line)" }),
      ],
    });
  };
  return html`<${Picture} draw=${draw} of=${[bins, band, m]} label=${label} />`;
}

/** What became of each iteration's questions, as parts of all: `rows` of {iteration, verdict, questions, share, href}. */
export function Parts({ rows, label, height = 220 }) {
  const draw = (width) =>
    Plot.plot({
      width,
      height,
      ...MARGIN,
      x: { label: "iteration", type: "band", padding: 0.35 },
      y: { label: null, ticks: 5, grid: true, tickFormat: (value) => `${Math.round(100 * value)}%` },
      color: { type: "identity" },
      marks: [
        Plot.barY(rows, Plot.stackY({
          x: "iteration",
          y: "share",
          fill: (row) => `var(--v-${row.verdict})`,
          href: "href",
          title: (row) => `iteration ${row.iteration}, ${row.verdict.replaceAll("_", " ")}\n${number(row.questions)} questions, ${percent(row.share)}`,
        })),
      ],
    });
  return html`<${Picture} draw=${draw} of=${rows} label=${label} />`;
}

/** A training's figure over its steps, one line an iteration, later ones darker; a band where points have an interval. */
export function Steps({ points, label, share = false, height = 170 }) {
  const draw = (width) => {
    const last = Math.max(1, ...points.map((point) => point.iteration));
    const colour = (point) => `color-mix(in oklab, var(--early), var(--late) ${Math.round((100 * point.iteration) / last)}%)`;
    const write = (value) => (share ? percent(value) : number(value, 4));
    const say = (point) => {
      const sure = point.lo === undefined ? "" : `\n95%: ${write(point.lo)} to ${write(point.hi)}\nn ${number(point.n)}`;
      return `iteration ${point.iteration}, step ${point.step}\n${write(point.value)}${sure}`;
    };
    return Plot.plot({
      width,
      height,
      ...MARGIN,
      marginBottom: 30,
      x: { label: "step", ticks: 4, tickFormat: "d" },
      y: { label: null, grid: true, nice: true, ticks: 4, tickFormat: share ? percents(points.map((point) => point.value)) : undefined },
      color: { type: "identity" },
      marks: [
        Plot.areaY(points.filter((point) => point.lo !== undefined), { x: "step", y1: "lo", y2: "hi", z: "iteration", fill: colour, fillOpacity: 0.13 }),
        Plot.lineY(points, { x: "step", y: "value", z: "iteration", stroke: colour, strokeWidth: 1.8 }),
        Plot.dot(points, { x: "step", y: "value", r: 6, fill: "transparent", title: say }),
      ],
    });
  };
  return html`<${Picture} draw=${draw} of=${[points, share]} label=${label} />`;
}

const MOST_ROWS = 30; // the last iterations; the numbers have all
const STAGE_COLOURS = {
  train_challenger: "var(--c-challenger)",
  generate_questions: "color-mix(in oklab, var(--c-challenger), var(--paper) 45%)",
  label_questions: "color-mix(in oklab, var(--c-solver), var(--paper) 45%)",
  train_solver: "var(--c-solver)",
  evaluate: "var(--c-evaluate)",
  audit_labels: "var(--c-audit)",
  check_health: "var(--muted)",
  read_prompts: "color-mix(in oklab, var(--c-challenger), var(--paper) 45%)",
  ask_a_person: "var(--v-no_majority)",
};
export const stageColour = (stage) => STAGE_COLOURS[stage] ?? "var(--muted)";

/** Stages one after the other, a row an iteration, from each iteration's own start: what the time went to. */
export function Timeline({ stages, now, label }) {
  const rows = [];
  const shown = new Set([...new Set(stages.map((stage) => stage.iteration))].slice(-MOST_ROWS));
  for (const stage of stages.filter((one) => shown.has(one.iteration))) {
    const before = rows.findLast((row) => row.iteration === stage.iteration);
    const took = stage.seconds ?? Math.max(0, (now - new Date(stage.started_at)) / 1000);
    const from = before ? before.to : 0;
    rows.push({ ...stage, from, to: from + took, took, colour: stageColour(stage.stage) });
  }
  const draw = (width) =>
    Plot.plot({
      width,
      height: 46 + 30 * new Set(rows.map((row) => row.iteration)).size,
      ...MARGIN,
      x: { label: "seconds of work", ticks: 6, grid: true },
      y: { label: null, type: "band", padding: 0.25, tickFormat: (t) => `t = ${t}` },
      color: { type: "identity" },
      marks: [
        Plot.barX(rows, {
          x1: "from",
          x2: "to",
          y: "iteration",
          fill: "colour",
          fillOpacity: (row) => (row.status === "done" ? 1 : 0.55),
          insetLeft: 0.5,
          title: (row) => `${row.stage.replaceAll("_", " ")} ${row.iteration}: ${row.status}\n${row.took.toFixed(1)} s, attempt ${row.attempt}`,
        }),
      ],
    });
  return html`<${Picture} draw=${draw} of=${rows} label=${label} />`;
}
