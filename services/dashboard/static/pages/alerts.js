// What the rules found, and who has seen to it.
import { html, useState } from "/static/preact.js";
import { post, useAnswer } from "../api.js";
import { ago, moment, number, percent, words } from "../format.js";
import { Action, Empty, Heading, Loading } from "../parts.js";
import { go } from "../router.js";
import { local, PERSON } from "../stored.js";

export function AlertsPage({ query }) {
  const wanted = { acknowledged: query.get("acknowledged") ?? "false", severity: query.get("severity"), after: query.get("after"), limit: 50 };
  const { data, error, again } = useAnswer("/alerts", { ...wanted, acknowledged: wanted.acknowledged === "all" ? null : wanted.acknowledged }, 5_000);
  const set = (name) => (event) => {
    const next = new URLSearchParams(query);
    next.set(name, event.target.value);
    if (!event.target.value) next.delete(name);
    next.delete("after");
    go(`/alerts?${next}`);
  };
  return html`<${Heading} title="Alerts">What the guard and the drift rules found, in all runs.</${Heading}>
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Show <select value=${wanted.acknowledged} onChange=${set("acknowledged")}><option value="false">open</option><option value="true">acknowledged</option><option value="all">all</option></select></label>
      <label>Severity <select value=${wanted.severity ?? ""} onChange=${set("severity")}><option value="">any</option><option value="critical">critical</option><option value="warning">warning</option></select></label>
    </form>
    <${Loading} data=${data} error=${error}>
      ${data && html`<${AlertList} alerts=${data.items} again=${again} showRun empty="Nothing here: no rule has found anything that nobody has seen to." />`}
      ${data?.next && html`<nav class="pager" aria-label="Pages of alerts"><a href=${`/alerts?${new URLSearchParams({ ...Object.fromEntries(query), after: data.next })}`}>Older alerts</a></nav>`}
    </${Loading}>`;
}

export function AlertList({ alerts, again, empty, showRun = false }) {
  if (alerts.length === 0) return html`<${Empty}>${empty}</${Empty}>`;
  return html`<ul class="alerts">${alerts.map((alert) => html`<${Alert} key=${alert.id} alert=${alert} again=${again} showRun=${showRun} />`)}</ul>`;
}

function Alert({ alert, again, showRun }) {
  const place = `/runs/${encodeURIComponent(alert.run)}`;
  const audited = alert.oracle && alert.series !== "training_label_accuracy"; // labels made in training are not stored
  const filters = new URLSearchParams(audited ? { oracle: alert.oracle, oracle_verdict: alert.series === "ill_posed_share" ? "ill_posed" : "wrong" } : {});
  if (alert.over === "kept") filters.set("verdict", "kept");
  return html`<li class=${`alert is-${alert.severity}${alert.acknowledged_at ? " seen" : ""}`}>
    <div>
      <p class="what"><span class=${`status is-${alert.severity}`}>${alert.severity}</span> <b>${words(alert.rule)}</b> ${alert.text}</p>
      <p class="meta">
        ${showRun && html`<a href=${place}>${alert.run}</a> · `}<a href=${`${place}/${alert.iteration}${String(filters) && `?${filters}`}`}>iteration ${alert.iteration}</a>
        ${alert.n !== null && ` · n ${number(alert.n)}`} · <time datetime=${alert.raised_at} title=${moment(alert.raised_at)}>${ago(alert.raised_at)}</time>
        ${alert.acknowledged_at && html` · seen by <bdi>${alert.acknowledged_by}</bdi>${alert.note && html`: <bdi>${alert.note}</bdi>`}`}
      </p>
    </div>
    ${!alert.acknowledged_at && html`<${Acknowledge} alert=${alert} again=${again} />`}
  </li>`;
}

function Acknowledge({ alert, again }) {
  const [open, setOpen] = useState(false);
  const [by, setBy] = useState(local.get(PERSON) ?? "");
  const [note, setNote] = useState("");
  async function send() {
    local.set(PERSON, by);
    await post(`/alerts/${alert.id}/acknowledgement`, { by, note });
    again();
  }
  if (!open) return html`<button type="button" class="quiet" onClick=${() => setOpen(true)}>Acknowledge</button>`;
  return html`<div class="acknowledge">
    <label>Your name <input value=${by} onInput=${(event) => setBy(event.target.value)} maxlength="100" required /></label>
    <label>Note <input value=${note} onInput=${(event) => setNote(event.target.value)} maxlength="2000" /></label>
    <${Action} work=${send} disabled=${!by}>Acknowledge</${Action}>
  </div>`;
}
