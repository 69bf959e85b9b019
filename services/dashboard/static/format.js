// Numbers and times as people read them.
export const percent = (share, digits = 1) =>
  share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}%`;

export const number = (value, digits = 3) =>
  value === null || value === undefined
    ? "–"
    : Number.isInteger(value)
      ? value.toLocaleString("en")
      : Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });

export const interval = ({ lo, hi }) =>
  lo === null || lo === undefined ? "no interval" : `${(100 * lo).toFixed(1)}–${(100 * hi).toFixed(1)}%`;

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

export function ago(time, now = Date.now()) {
  const seconds = Math.max(0, (now - new Date(time)) / 1000);
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

export const moment = (time) => new Date(time).toISOString().replace("T", " ").slice(0, 16) + " UTC";

/** The words of a name: `too_easy` is read as "too easy". */
export const words = (name) => name.replaceAll("_", " ");
