// The state of a run, the reason for it, and its open alerts, as the list of runs and a run's page show them.
import { html } from "/static/preact.js";
import { dateTime, timeAgo } from "./format.js";
import { Status } from "./parts.js";
import { runUrl } from "./router.js";

/** @typedef {Schemas["RunSummary"]} RunSummary */

const PROBLEMS = ["failed", "interrupted"];
/** @type {("critical" | "warning")[]} */
const SEVERITIES = ["critical", "warning"];

/** Whether the store has the run. Until its flow has begun, only Prefect knows it. @param {RunSummary} run */
export const isStored = (run) => run.seed !== null;

/** The text with its parts between backticks as code. @param {string} text */
export const withCode = (text) =>
  text.split("`").map((part, i) => (i % 2 ? html`<code key=${i}>${part}</code>` : part));

/**
 * Why the run is in its state, and when it got into it; `children` come after the reason.
 *
 * @param {{ run: RunSummary, children?: Children }} props
 */
export function Reason({ run, children }) {
  const { state, reason, since, flow_run } = run;
  const link = flow_run && html` · <a href=${flow_run} target="_blank" rel="noopener">Flow run in Prefect</a>`;
  return html`<div class=${PROBLEMS.includes(state) ? "reason problem" : "reason"}>
    <p><bdi>${withCode(reason)}</bdi></p>
    ${children}
    <p class="meta"><time datetime=${since} title=${dateTime(since)}>${timeAgo(since)}</time>${link}</p>
  </div>`;
}

/** A link to the run's page for each severity of which it has open alerts. @param {{ run: RunSummary }} props */
export function AlertBadges({ run }) {
  const counts = SEVERITIES.map((severity) => ({ severity, count: run.open_alerts[severity] }));
  return counts
    .filter(({ count }) => count > 0)
    .map(({ severity, count }) => {
      const label = severity === "critical" ? "critical alert" : "warning";
      return html`<a key=${severity} class=${`badge is-${severity}`} href=${`${runUrl(run.name)}#alerts`}>${count} ${label}${count === 1 ? "" : "s"}</a>`;
    });
}

/** The state as a word, with the badges of the open alerts. @param {{ run: RunSummary }} props */
export const RunStatus = ({ run }) => html`<${Status} status=${run.state} /> <${AlertBadges} run=${run} />`;
