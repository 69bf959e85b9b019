// Formats numbers, times and names for people.

/** @typedef {number | null | undefined} MaybeNumber */

/** @param {MaybeNumber} share @param {number} [digits] */
export const percent = (share, digits = 1) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;

/** A difference of two shares in points, with its sign: "−0.9". @param {MaybeNumber} share */
export const points = (share) =>
  share === null || share === undefined ? "–" : `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)}`;

/** @param {MaybeNumber} value @param {number} [digits] significant digits, if it is not an integer */
export const number = (value, digits = 3) =>
  value === null || value === undefined
    ? "–"
    : Number.isInteger(value)
      ? value.toLocaleString("en")
      : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });

/** @param {{ lo?: number | null, hi?: number | null }} estimate */
export const interval = ({ lo, hi }) =>
  lo === null || lo === undefined || hi === null || hi === undefined
    ? "no interval"
    : `${(100 * lo).toFixed(1)}–${(100 * hi).toFixed(1)}%`;

/** @param {MaybeNumber} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/**
 * A range of seconds in the unit of its upper end: "12 to 31 min".
 *
 * @param {{ low: number, high: number }} range
 */
export function durationRange({ low, high }) {
  const [unit, seconds] = high >= 7200 ? ["h", 3600] : high >= 120 ? ["min", 60] : ["s", 1];
  const [from, to] = [low, high].map((end) => (end / seconds).toFixed(0));
  return from === to ? `${to} ${unit}` : `${from} to ${to} ${unit}`;
}

/** @param {string} time as in ISO 8601 */
export function timeAgo(time) {
  const seconds = Math.max(0, (Date.now() - new Date(time).getTime()) / 1000);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

/** @param {string} time as in ISO 8601 */
export const dateTime = (time) => `${new Date(time).toISOString().replace("T", " ").slice(0, 16)} UTC`;

/** Replaces the underscores in a name by spaces: `too_easy` becomes "too easy". @param {string} name */
export const humanise = (name) => name.replaceAll("_", " ");

/**
 * How many questions a figure rests on. Those of an estimate are the audited ones of other iterations.
 *
 * @param {{ n: number, estimated?: boolean }} figure @param {string} [label] of a measured figure's number
 */
export const countOf = ({ n, estimated }, label = "n") =>
  estimated ? `estimated from p̂, calibrated on ${number(n)}` : `${label} ${number(n)}`;
