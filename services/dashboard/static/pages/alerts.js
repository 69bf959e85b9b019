// The alerts of all runs, open ones grouped by run and rule, and a form to acknowledge them.
import { html, useState } from "/static/preact.js";
import { post, useResponse } from "../api.js";
import { dateTime, humanise, number, timeAgo } from "../format.js";
import { ActionButton, Empty, Heading, Loading } from "../parts.js";
import { navigate, runUrl, withQuery } from "../router.js";
import { browserStorage, USER_NAME_KEY } from "../stored.js";
import { filteredUrl, scrolledToQuestions } from "./questions.js";

/** @typedef {Schemas["AlertRow"]} AlertRow */
/** @typedef {Schemas["AlertGroup"]} AlertGroup */

const POLL_MS = 5_000;

/** @param {{ query: URLSearchParams }} props */
export function AlertsPage({ query }) {
  const acknowledged = query.get("acknowledged") ?? "false";
  const filters = {
    acknowledged: acknowledged === "all" ? null : acknowledged,
    severity: query.get("severity"),
    after: query.get("after"),
  };
  const isGrouped = acknowledged === "false" && !query.has("each");
  const { data, error, refetch } = useResponse(isGrouped ? null : "/alerts", { ...filters, limit: 50 }, POLL_MS);
  const groups = useResponse(isGrouped ? "/alerts/groups" : null, { severity: filters.severity }, POLL_MS);
  /** @param {string} name @returns {(event: EventOn<HTMLSelectElement>) => void} */
  const setFilter = (name) => (event) => {
    const newQuery = new URLSearchParams(query);
    newQuery.set(name, event.target.value);
    if (!event.target.value) newQuery.delete(name);
    newQuery.delete("after");
    navigate(`/alerts?${newQuery}`);
  };
  return html`<${Heading} title="Alerts">Alerts from the guard and the drift rules, in all runs.</${Heading}>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Show <select value=${acknowledged} onChange=${setFilter("acknowledged")}><option value="false">open</option><option value="true">acknowledged</option><option value="all">all</option></select></label>
      <label>Severity <select value=${filters.severity ?? ""} onChange=${setFilter("severity")}><option value="">any</option><option value="critical">critical</option><option value="warning">warning</option></select></label>
    </form>
    ${acknowledged === "false" && html`<p class="meta"><a href=${filteredUrl("/alerts", query, { each: isGrouped ? "true" : null })}>${isGrouped ? "Show each alert" : "Group by run and rule"}</a></p>`}
    ${isGrouped && html`<${Loading} data=${groups.data} error=${groups.error}><${GroupList} groups=${groups.data ?? []} refetch=${groups.refetch} /></${Loading}>`}
    ${
      !isGrouped &&
      html`<${Loading} data=${data} error=${error}>
      ${data && html`<${AlertList} alerts=${data.items} refetch=${refetch} showRun empty="No alerts match these filters." />`}
      ${data?.next && html`<nav class="pager" aria-label="Pages of alerts"><a href=${`/alerts?${new URLSearchParams({ ...Object.fromEntries(query), after: data.next })}`}>Older alerts</a></nav>`}
    </${Loading}>`
    }`;
}

/** @param {{ groups: AlertGroup[], refetch: () => void }} props */
function GroupList({ groups, refetch }) {
  if (groups.length === 0) return html`<${Empty}>No alerts match these filters.</${Empty}>`;
  return html`<ul class="alerts">${groups.map(
    ({ run, rule, severity, alerts, first_iteration, last_iteration, text, raised_at }) => {
      const iterations =
        first_iteration === last_iteration
          ? `iteration ${last_iteration}`
          : `iterations ${first_iteration} to ${last_iteration}`;
      return html`<li key=${`${run}/${rule}`} class=${`alert is-${severity}`}>
      <div>
        <p class="what"><span class=${`status is-${severity}`}>${severity}</span> <b><a href=${runUrl(run)}>${run}</a></b> ${humanise(rule)}: ${text}</p>
        <p class="meta">${alerts} ${alerts === 1 ? "alert" : "alerts"} · ${iterations} · newest <time datetime=${raised_at} title=${dateTime(raised_at)}>${timeAgo(raised_at)}</time></p>
      </div>
      <${AcknowledgeForm} label=${alerts === 1 ? "Acknowledge" : `Acknowledge ${alerts}`} refetch=${refetch} send=${(/** @type {{ by: string, note: string }} */ body) => post("/alerts/acknowledgement", {}, { ...body, run, rule, until: raised_at })} />
    </li>`;
    },
  )}</ul>`;
}

/** @param {{ alerts: AlertRow[], refetch: () => void, empty: string, showRun?: boolean }} props */
export function AlertList({ alerts, refetch, empty, showRun = false }) {
  if (alerts.length === 0) return html`<${Empty}>${empty}</${Empty}>`;
  return html`<ul class="alerts">${alerts.map((alert) => html`<${Alert} key=${alert.id} alert=${alert} refetch=${refetch} showRun=${showRun} />`)}</ul>`;
}

/**
 * The address of the questions that show the cause of an alert.
 *
 * @param {AlertRow} alert
 */
function questionsUrl(alert) {
  const filters = new URLSearchParams();
  // The verdicts on labels that were made in training are not stored, so there is no list of them.
  if (alert.oracle && alert.series !== "training_label_accuracy") {
    filters.set("oracle", alert.oracle);
    filters.set("oracle_verdict", alert.series === "ill_posed_share" ? "ill_posed" : "wrong");
  }
  if (alert.over === "kept") filters.set("verdict", "kept");
  const url = `${runUrl(alert.run)}/${alert.iteration}`;
  return String(filters) ? scrolledToQuestions(withQuery(url, filters)) : url;
}

/** @param {{ alert: AlertRow, refetch: () => void, showRun: boolean }} props */
function Alert({ alert, refetch, showRun }) {
  const url = runUrl(alert.run);
  return html`<li class=${`alert is-${alert.severity}${alert.acknowledged_at ? " seen" : ""}`}>
    <div>
      <p class="what"><span class=${`status is-${alert.severity}`}>${alert.severity}</span> <b>${humanise(alert.rule)}</b> ${alert.text}</p>
      <p class="meta">
        ${showRun && html`<a href=${url}>${alert.run}</a> · `}<a href=${questionsUrl(alert)}>iteration ${alert.iteration}</a>
        ${alert.n !== null && ` · n ${number(alert.n)}`} · <time datetime=${alert.raised_at} title=${dateTime(alert.raised_at)}>${timeAgo(alert.raised_at)}</time>
        ${alert.acknowledged_at && html` · acknowledged by <bdi>${alert.acknowledged_by}</bdi>${alert.note && html`: <bdi>${alert.note}</bdi>`}`}
      </p>
    </div>
    ${!alert.acknowledged_at && html`<${AcknowledgeForm} label="Acknowledge" refetch=${refetch} send=${(/** @type {{ by: string, note: string }} */ body) => post("/alerts/{alert}/acknowledgement", { alert: alert.id }, body)} />`}
  </li>`;
}

/** @param {{ label: string, refetch: () => void, send: (body: { by: string, note: string }) => Promise<unknown> }} props */
function AcknowledgeForm({ label, refetch, send }) {
  const [open, setOpen] = useState(false);
  const [name, setName] = useState(browserStorage.get(USER_NAME_KEY) ?? "");
  const [note, setNote] = useState("");
  async function acknowledge() {
    browserStorage.set(USER_NAME_KEY, name);
    await send({ by: name, note });
    refetch();
  }
  if (!open) return html`<button type="button" class="quiet" onClick=${() => setOpen(true)}>${label}</button>`;
  return html`<div class="acknowledge">
    <label>Your name <input value=${name} onInput=${(event) => setName(event.target.value)} maxlength="100" required /></label>
    <label>Note <input value=${note} onInput=${(event) => setNote(event.target.value)} maxlength="2000" /></label>
    <${ActionButton} action=${acknowledge} disabled=${!name}>${label}</${ActionButton}>
  </div>`;
}
