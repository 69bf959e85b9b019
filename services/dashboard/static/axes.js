// The margins of charts, and a vertical axis whose ticks fit into them.

export const MARGIN = { marginLeft: 48, marginRight: 16, marginTop: 14, marginBottom: 34 };
const PIXELS_PER_CHARACTER = 7; // of a tick's label, with some room
const PIXELS_BESIDE_LABEL = 14; // the tick itself and its distance to the label

/**
 * The vertical axis for some values: ticks with as many digits as tell them apart, and a margin that their labels fit
 * into. If all values are equal, the axis is widened around them, but one that begins at 0 has no negative numbers.
 *
 * @param {number[]} values
 * @param {boolean} isShare whether the ticks are in percent
 * @param {number} count about how many ticks there are
 */
export function verticalAxis(values, isShare, count) {
  const lowest = Math.min(...values);
  const slack = lowest === Math.max(...values) ? (isShare ? 0.05 : Math.abs(lowest) / 10 || 1) : 0;
  const low = lowest === 0 ? 0 : lowest - slack;
  const high = Math.max(...values) + slack;
  const domain = values.length
    ? d3.nice(isShare ? Math.max(low, 0) : low, isShare ? Math.min(high, 1) : high, count)
    : [0, 1];
  const tickFormat = d3.tickFormat(domain[0], domain[1], count, isShare ? "%" : undefined);
  const longest = Math.max(...d3.ticks(domain[0], domain[1], count).map((tick) => tickFormat(tick).length));
  return {
    marginLeft: Math.max(MARGIN.marginLeft, PIXELS_BESIDE_LABEL + PIXELS_PER_CHARACTER * longest),
    y: { label: null, grid: true, domain, ticks: count, tickFormat },
  };
}
