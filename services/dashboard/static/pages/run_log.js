// The last lines of a run's log: what its stages said of their results, and warnings and errors.
import { html } from "/static/preact.js";
import { useResponse } from "../api.js";
import { dateTime } from "../format.js";
import { Panel } from "../parts.js";

/** @typedef {Schemas["LogEvent"]} LogEvent */

const LINES = 50;

/** Shows nothing if the run has no log, as a run of an earlier version. @param {{ run: string, pollMs: number }} props */
export function RunLog({ run, pollMs }) {
  const { data: events } = useResponse("/runs/{run}/log", { run, lines: LINES }, pollMs);
  if (!events || events.length === 0) return null;
  const about = `The last ${LINES} lines at most. coevo logs ${run} prints all that are kept.`;
  return html`<${Panel} title="Log" wide id="log" about=${about}><${Lines} events=${events} name="Log of the run" /></${Panel}>`;
}

/**
 * The last lines of a stage that failed, and what to do about it.
 *
 * @param {{ run: string, stage: Schemas["Stage"] }} props
 */
export function LastLines({ run, stage: { iteration, stage } }) {
  const { data } = useResponse("/runs/{run}/log", { run, lines: LINES }, 0);
  const events = (data ?? []).filter((event) => event.stage === stage && event.iteration === iteration);
  return html`<div class="now failure">
    <span>What the stage had stored is kept. Remove the cause, then resume the run: the stage continues where it stopped.</span>
    ${events.length > 0 && html`<details><summary>Its last lines</summary><${Lines} events=${events} name="Last lines of the failed stage" /></details>`}
  </div>`;
}

/** @param {{ events: LogEvent[], name: string }} props */
function Lines({ events, name }) {
  const lines = events.map(
    (event, i) =>
      html`<span key=${i} class=${`is-${event.level.toLowerCase()}`}><time dateTime=${event.time}>${dateTime(event.time)}</time> ${event.level} <bdi>${event.message}</bdi></span>`,
  );
  return html`<pre class="log" tabindex="0" role="region" aria-label=${name}>${lines}</pre>`;
}
