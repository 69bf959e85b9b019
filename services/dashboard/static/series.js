// Groups the points of the API's series into lines for the charts.
import { countOf } from "./format.js";

/** @typedef {Schemas["SeriesPoint"]} SeriesPoint */
/** @typedef {{ name: string, oracle: string, over: string, points: SeriesPoint[] }} Series */

/**
 * The series with one name: one for each oracle and each set of questions, with its points sorted by iteration.
 *
 * @param {SeriesPoint[]} seriesPoints
 * @param {string} name
 */
export function seriesNamed(seriesPoints, name) {
  /** @type {Map<string, Series>} */
  const byKey = new Map();
  for (const point of seriesPoints) {
    if (point.name !== name) continue;
    const key = `${point.oracle}/${point.over}`;
    const series = byKey.get(key) ?? { name, oracle: point.oracle, over: point.over, points: [] };
    series.points.push(point);
    byKey.set(key, series);
  }
  for (const series of byKey.values()) series.points.sort((a, b) => a.iteration - b.iteration);
  return [...byKey.values()];
}

/**
 * pass@1 of each Solver on the benchmark, and whether the run trains on the benchmark's questions. `points` is empty if
 * nothing has been evaluated.
 *
 * @param {SeriesPoint[]} seriesPoints
 */
export function benchmarkAccuracy(seriesPoints) {
  const [testTime] = seriesNamed(seriesPoints, "test_time");
  if (testTime) {
    const about = "pass@1 of each Solver on the questions that it trains on. Their answers are hidden from training.";
    return { points: testTime.points, title: "Test-time accuracy", about };
  }
  const [heldOut] = seriesNamed(seriesPoints, "held_out");
  if (heldOut) {
    const about = "pass@1 of each Solver on questions that are not used in training.";
    return { points: heldOut.points, title: "Held-out accuracy", about };
  }
  return { points: [], title: "Benchmark accuracy", about: "pass@1 of each Solver on the benchmark." };
}

/**
 * The last point of a series that was measured or, if none was, the last estimate.
 *
 * @param {Series | undefined} series
 */
export const latestPoint = (series) => series?.points.findLast((point) => !point.estimated) ?? series?.points.at(-1);

/**
 * The points of a chart's lines as rows of a table; ~ marks an estimate.
 *
 * @param {import("./charts.js").ChartLine[]} lines
 * @param {(value: number | null | undefined) => string} format
 */
export const tableRows = (lines, format) =>
  lines.flatMap((line) =>
    line.points.map((point) => [
      line.name,
      point.iteration,
      `${point.estimated ? "~" : ""}${format(point.value)}`,
      point.lo === null ? "–" : `${format(point.lo)} – ${format(point.hi)}`,
      point.n !== null && point.estimated ? countOf({ ...point, n: point.n }) : point.n,
    ]),
  );
export const TABLE_HEAD = ["series", "iteration", "value", "95% interval", "n"];
