// Components that several pages use.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { download, report, toError } from "./api.js";
import { countOf, humanise, interval, percent } from "./format.js";
import { focusHeading } from "./router.js";

/** @typedef {Schemas["Estimate"]} Estimate */
/**
 * A share with its 95% interval, which a series may lack; `estimated` if it was not measured but estimated from p_hat.
 *
 * @typedef {{ value: number, lo: number | null, hi: number | null, n: number, estimated?: boolean }} ShareEstimate
 */

/**
 * The settings of a run that the pages show. The API's description does not list them, since each kind of run has
 * others; `shared`, and the fields of `dataset` but for `votes`, belong to co-evolution, and `prompts` to
 * self-training.
 *
 * @typedef {{
 *   kind: string,
 *   shared?: boolean,
 *   solver: { reward: { type: string } },
 *   dataset: { votes: number, filtered?: boolean, band?: [number, number] | null, delta?: number },
 *   prompts?: { file: string },
 *   evaluation: { benchmark: string },
 *   alerts: { min_n: number },
 * }} RunConfig
 */

/** @type {NonNullable<Schemas["QuestionSummary"]["verdict"]>[]} */
export const VERDICTS = ["kept", "too_easy", "too_hard", "no_majority", "refused", "malformed", "duplicate"];
/** @type {Schemas["OracleLabel"]["verdict"][]} */
export const ORACLE_VERDICTS = ["right", "wrong", "ill_posed", "unknown"];

/** @param {Schemas["RunWithConfig"]} run */
export const configOf = (run) => /** @type {RunConfig} */ (/** @type {unknown} */ (run.config));

/** Whether the run can still change without being resumed. @param {{ active: boolean }} run */
export const isLive = (run) => run.active;

/** @param {{ status: string }} props */
export const Status = ({ status }) => html`<span class="status is-${status}">${humanise(status)}</span>`;

/** @param {{ verdict: string | null, gate: string | null }} props `gate`: the one that refused the question */
export const Verdict = ({ verdict, gate }) =>
  verdict === null
    ? html`<span class="none">not labelled</span>`
    : html`<span class="verdict"><i class="swatch v-${verdict}"></i>${humanise(verdict)}${gate && html`<small> by ${humanise(gate)}</small>`}</span>`;

/** @param {{ label: Schemas["OracleLabel"] }} props */
export const OracleVerdict = ({ label }) =>
  html`<span class="said s-${label.verdict}">${humanise(label.verdict)}<small> by ${humanise(label.oracle)}</small></span>`;

/**
 * A share with its interval and its n, without which no share is shown.
 *
 * @param {{ estimate: ShareEstimate | null | undefined, countLabel?: string }} props
 */
export function Share({ estimate, countLabel = "n" }) {
  if (!estimate) return html`<span class="none">–</span>`;
  return html`<span class=${estimate.estimated ? "share estimated" : "share"}>
    <b>${percent(estimate.value)}</b> <small>${interval(estimate)} · ${countOf(estimate, countLabel)}</small>
  </span>`;
}

/**
 * One of the figures at the top of a page; `children` replace the value of `estimate`.
 *
 * @param {{ label: string, estimate?: ShareEstimate | null, note?: Children, children?: Children }} props
 */
export function Tile({ label, estimate, note, children }) {
  const value = estimate ? html`<b>${percent(estimate.value)}</b>` : html`<b class="none">–</b>`;
  const details = estimate ? `${interval(estimate)} · ${countOf(estimate)}` : "";
  return html`<div class="tile">
    <dt>${label}</dt>
    <dd>
      ${children ?? value}
      <small>${details}${note ? html`<br />${note}` : ""}</small>
    </dd>
  </div>`;
}

/**
 * What the colours of a chart stand for.
 *
 * @param {{ items: [name: string, colour: string, isDashed?: boolean][] }} props
 */
export function Legend({ items }) {
  const rows = items.map(([name, colour, isDashed]) => {
    const style = isDashed ? { color: colour } : { background: colour };
    return html`<li key=${name}><i class=${isDashed ? "dashed" : "swatch"} style=${style}></i>${name}</li>`;
  });
  return html`<ul class="legend">${rows}</ul>`;
}

/**
 * A framed part of a page: a heading, a description, and the data of its chart as a table.
 *
 * @typedef {{ head: string[], rows: (string | number | null)[][] }} TableData
 * @param {{ title: string, about?: string, wide?: boolean, children?: Children, table?: TableData, id?: string }} props
 */
export function Panel({ title, about, wide, children, table, id }) {
  return html`<section class=${`panel${wide ? " wide" : ""}`} id=${id}>
    <h2>${title}</h2>
    ${about && html`<p class="about">${about}</p>`} ${children}
    ${table && table.rows.length > 0 && html`<${DataTable} ...${table} title=${title} />`}
  </section>`;
}

/** @param {TableData & { title: string }} props */
function DataTable({ head, rows, title }) {
  return html`<details class="numbers">
    <summary>Data table<span class="sr"> of ${title}</span></summary>
    <${Table} label=${`Data table of ${title}`} head=${head}>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${cell}</td>`)}</tr>`)}</tbody>
    </${Table}>
  </details>`;
}

/**
 * A table in a frame that scrolls: the heads of its columns, and its body or bodies.
 *
 * @param {{ label: string, head: Children[], class?: string, tall?: boolean, children?: Children }} props
 */
export function Table({ label, head, class: className, tall, children }) {
  return html`<div class=${tall ? "scroll tall" : "scroll"} tabindex="0" role="region" aria-label=${label}>
    <table class=${className}>
      <thead><tr>${head.map((name, i) => html`<th key=${i} scope="col">${name}</th>`)}</tr></thead>
      ${children}
    </table>
  </div>`;
}

/**
 * A part of a page that is closed at first. It shows nothing if `count` is 0.
 *
 * @param {{ title: string, count: number, children?: Children }} props
 */
export const Fold = ({ title, count, children }) =>
  count > 0 ? html`<details class="fold"><summary>${title} (${count})</summary>${children}</details>` : null;

/** @param {{ error: Error | null }} props */
export const ErrorMessage = ({ error }) => (error ? html`<p class="problem" role="alert">${error.message}</p>` : null);

/**
 * Shows `children` once `data` has arrived, and the error of the latest request.
 *
 * @param {{ data: unknown, error: Error | null, children?: Children }} props
 */
export function Loading({ data, error, children }) {
  if (data !== null) return html`<${ErrorMessage} error=${error} />${children}`;
  return error ? html`<${ErrorMessage} error=${error} />` : html`<p class="loading" aria-busy="true">Loading…</p>`;
}

/** Shown in place of an empty list or chart. @param {{ children?: Children }} props */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/**
 * The heading of a page, with links to the pages above it, and the document's title.
 *
 * @param {{ breadcrumbs?: [name: string, href: string][], title: string, children?: Children, aside?: Children }} props
 */
export function Heading({ breadcrumbs = [], title, children, aside }) {
  const heading = useRef(/** @type {HTMLElement | null} */ (null));
  const namesAbove = breadcrumbs.slice(1).map(([name]) => name);
  const missingNames = namesAbove.filter((name) => !title.includes(name)).reverse();
  const documentTitle = [title, ...missingNames, "coevo"].join(" · ");
  useEffect(() => {
    document.title = documentTitle;
  }, [documentTitle]);
  useEffect(() => focusHeading(heading.current), []);
  const links = breadcrumbs.map(
    ([name, href]) => html`<a key=${href} href=${href}>${name}</a><span aria-hidden="true">/</span>`,
  );
  return html`<header class="heading">
    ${links.length > 0 && !report && html`<nav aria-label="Breadcrumbs">${links}</nav>`}
    <div class="title"><h1 ref=${heading} tabindex="-1">${title}</h1>${aside}</div>
    ${children && html`<p class="meta">${children}</p>`}
  </header>`;
}

/**
 * A button that is disabled while its action runs, and shows the error if the action fails.
 *
 * @param {{ children?: Children, action: () => Promise<void>, class?: string, disabled?: boolean }} props
 */
export function ActionButton({ children, action, class: className = "", disabled = false }) {
  const [state, setState] = useState(
    /** @returns {{ busy: boolean, error: Error | null }} */
    () => ({ busy: false, error: null }),
  );
  async function run() {
    setState({ busy: true, error: null });
    try {
      await action();
      setState({ busy: false, error: null });
    } catch (error) {
      setState({ busy: false, error: toError(error) });
    }
  }
  return html`<span class="action">
    <button type="button" class=${className} disabled=${disabled || state.busy} onClick=${run}>${children}</button>
    <${ErrorMessage} error=${state.error} />
  </span>`;
}

/** @param {{ path: string, parameters: object, children?: Children }} props */
export const DownloadButton = ({ path, parameters, children }) =>
  html`<${ActionButton} class="quiet" action=${() => download(path, parameters)}>${children}</${ActionButton}>`;
