// The small pieces that pages are made of.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { download } from "./api.js";
import { ago, interval, number, percent, words } from "./format.js";
import { arrive } from "./router.js";

export const VERDICTS = ["kept", "too_easy", "too_hard", "no_majority", "malformed", "duplicate"];
export const SAID = ["right", "wrong", "ill_posed", "unknown"];
const LIVE = new Set(["created", "running", "paused"]);

export const isLive = (run) => LIVE.has(run.status);

export const Status = ({ status }) => html`<span class="status is-${status}">${words(status)}</span>`;

const STARTS = { SCHEDULED: "waiting", PENDING: "starting", RUNNING: "starting", PAUSED: "paused", CANCELLING: "cancelled", CANCELLED: "cancelled", FAILED: "failed", CRASHED: "failed" };
const FAILED = ["FAILED", "CRASHED"];

/** Flow runs of which the store has nothing yet. One that was cancelled before it began is nobody's concern. */
export const notBegun = (flowRuns) => (flowRuns ?? []).filter((one) => !one.begun && one.state !== "CANCELLED");

/** A flow run of Prefect's that waits to begin, or failed before it began. */
export function FlowRun({ flowRun, children }) {
  const failed = FAILED.includes(flowRun.state);
  const what = failed ? "It failed before it changed anything in the store" : flowRun.state === "SCHEDULED" ? "It waits for a flow runner" : "Its flow is starting";
  return html`<div class="flow-run">
    <p>${children} <${Status} status=${STARTS[flowRun.state] ?? "starting"} /></p>
    ${failed
      ? html`<p class="problem"><b>${what}:</b> ${flowRun.message ?? "Prefect has no message."}</p>`
      : html`<p class="meta">${what}${flowRun.name === "Late" ? ", which is late: `coevo status` says whether one runs" : ""}.</p>`}
    <p class="meta">${ago(flowRun.since)} · <a href=${flowRun.url} target="_blank" rel="noopener">its flow run in Prefect</a></p>
  </div>`;
}

export const Verdict = ({ verdict }) =>
  verdict === null
    ? html`<span class="none">not labelled</span>`
    : html`<span class="verdict"><i class="swatch v-${verdict}"></i>${words(verdict)}</span>`;

export const Said = ({ said }) =>
  html`<span class="said s-${said.verdict}">${words(said.verdict)}<small> by ${words(said.oracle)}</small></span>`;

/** A share with its interval and what it rests on; nothing is shown without them. */
export function Share({ estimate, of = "n" }) {
  if (!estimate) return html`<span class="none">–</span>`;
  const { n, value, estimated } = estimate;
  return html`<span class="share">
    <b>${percent(value)}</b> <small>${interval(estimate)} · ${of} ${number(n)}${estimated ? " · estimated" : ""}</small>
  </span>`;
}

/** A headline figure. */
export function Tile({ label, estimate, note, children }) {
  return html`<div class="tile">
    <dt>${label}</dt>
    <dd>
      ${children ?? (estimate ? html`<b>${percent(estimate.value)}</b>` : html`<b class="none">–</b>`)}
      <small>${estimate ? `${interval(estimate)} · n ${number(estimate.n)}${estimate.estimated ? " · estimated from p̂" : ""}` : ""}${note ? html`<br />${note}` : ""}</small>
    </dd>
  </div>`;
}

/** What a colour stands for: `items` of [name, colour, whether its line is dashed]. */
export const Legend = ({ items }) =>
  html`<ul class="legend">
    ${items.map(([name, colour, dashed]) => html`<li key=${name}>
      <i class=${dashed ? "dashed" : "swatch"} style=${dashed ? { color: colour } : { background: colour }}></i>${name}
    </li>`)}
  </ul>`;

/** A picture in a frame, with a heading, a word on how to read it, and its numbers as a table. */
export function Panel({ title, about, wide, children, table, id }) {
  return html`<section class=${`panel${wide ? " wide" : ""}`} id=${id}>
    <h2>${title}</h2>
    ${about && html`<p class="about">${about}</p>`} ${children}
    ${table && table.rows.length > 0 && html`<${Numbers} ...${table} title=${title} />`}
  </section>`;
}

function Numbers({ head, rows, title }) {
  return html`<details class="numbers">
    <summary>Numbers<span class="sr"> of ${title}</span></summary>
    <div class="scroll" tabindex="0" role="region" aria-label=${`Numbers of ${title}`}>
      <table>
        <thead><tr>${head.map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
        <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
      </table>
    </div>
  </details>`;
}

export const Problem = ({ error }) => (error ? html`<p class="problem" role="alert">${error.message}</p>` : null);

export function Loading({ data, error, children }) {
  if (data === null) {
    return error ? html`<${Problem} error=${error} />` : html`<p class="loading" aria-busy="true">Asking the API…</p>`;
  }
  return html`<${Problem} error=${error} />${children}`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** Where one is: links to what is above, and the page's own name, which is the document's too. */
export function Heading({ trail = [], title, children, aside }) {
  const place = useRef();
  const above = trail.slice(1).map(([name]) => name).filter((name) => !title.includes(name));
  const named = [title, ...above.reverse(), "coevo"].join(" · ");
  useEffect(() => {
    document.title = named;
  }, [named]);
  useEffect(() => arrive(place.current), []);
  return html`<header class="heading">
    ${trail.length > 0 &&
    html`<nav aria-label="Where you are">
      ${trail.map(([name, href]) => html`<a key=${href} href=${href}>${name}</a><span aria-hidden="true">/</span>`)}
    </nav>`}
    <div class="title"><h1 ref=${place} tabindex="-1">${title}</h1>${aside}</div>
    ${children && html`<p class="meta">${children}</p>`}
  </header>`;
}

/** A button whose work takes a while and may be refused. */
export function Action({ children, work, kind = "", disabled = false }) {
  const [state, setState] = useState({ busy: false, error: null });
  async function run() {
    setState({ busy: true, error: null });
    try {
      await work();
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error });
    }
  }
  return html`<span class="action">
    <button type="button" class=${kind} disabled=${disabled || state.busy} onClick=${run}>${children}</button>
    <${Problem} error=${state.error} />
  </span>`;
}

export const Download = ({ path, query, name, children }) =>
  html`<${Action} kind="quiet" work=${() => download(path, query, name)}>${children}</${Action}>`;
