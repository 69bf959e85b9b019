// The last lines of a run's log: what its stages said of their results, and warnings and errors.
import { html, useLayoutEffect, useRef, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { dateTime } from "../format.js";
import { Panel } from "../parts.js";

/** @typedef {Schemas["LogEvent"]} LogEvent */

const LINES = 50;
const PIXELS_OF_NEWEST = 8; // a box that is scrolled to this distance from its end, or nearer, shows the newest line

/** Shows nothing if the run has no log yet. @param {{ run: string, pollMs: number }} props */
export function RunLog({ run, pollMs }) {
  const { data: events } = useResponse("/runs/{run}/log", { run, lines: LINES }, pollMs);
  if (!events || events.length === 0) return null;
  const about = `The last ${LINES} lines at most. coevo runs log ${run} prints all that are kept.`;
  return html`<${Panel} title="Log" wide id="log" about=${about}><${Lines} events=${events} name="Log of the run" /></${Panel}>`;
}

/**
 * The last lines of a stage that failed, and what to do about it.
 *
 * @param {{ run: string, stage: Schemas["Stage"] }} props
 */
export function LastLines({ run, stage: { iteration, stage } }) {
  const { data } = useResponse("/runs/{run}/log", { run, lines: LINES }, 0);
  const [isOpen, setIsOpen] = useState(false);
  const events = (data ?? []).filter((event) => event.stage === stage && event.iteration === iteration);
  return html`<div class="now failure">
    <span>What the stage had stored is kept. Remove the cause, then resume the run: the stage continues where it stopped.</span>
    ${events.length > 0 && html`<details onToggle=${(event) => setIsOpen(event.target.open)}><summary>Its last lines</summary>${isOpen && html`<${Lines} events=${events} name="Last lines of the failed stage" />`}</details>`}
  </div>`;
}

/**
 * The lines in a box that is scrolled to the newest one, unless the user has scrolled up.
 *
 * @param {{ events: LogEvent[], name: string }} props
 */
function Lines({ events, name }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const followsNewest = useRef(true);
  useLayoutEffect(() => {
    if (box.current && followsNewest.current) box.current.scrollTop = box.current.scrollHeight;
  }, [events]);
  /** @param {EventOn<HTMLElement>} event */
  const onScroll = ({ target: { scrollTop, scrollHeight, clientHeight } }) => {
    followsNewest.current = scrollTop + clientHeight > scrollHeight - PIXELS_OF_NEWEST;
  };
  const lines = events.map(
    (event, i) =>
      html`<span key=${i} class=${`is-${event.level.toLowerCase()}`}><time dateTime=${event.time}>${dateTime(event.time)}</time> ${event.level} <bdi>${event.message}</bdi></span>`,
  );
  return html`<pre ref=${box} class="log" onScroll=${onScroll} tabindex="0" role="region" aria-label=${name}>${lines}</pre>`;
}
