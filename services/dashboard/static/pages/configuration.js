// The configuration of a run: every setting with where it comes from, and the whole as TOML.
import { html, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { Empty, Heading, Loading, Panel, Table } from "../parts.js";
import { navigate, runUrl, withQuery } from "../router.js";

/** @typedef {Schemas["RunSetting"]} Setting */
/** @typedef {Schemas["Configuration"]} Configuration */

/** @type {Record<Setting["source"], string>} */
const SOURCES = {
  override: "override",
  preset: "preset",
  default: "default",
  continued: "set when the run was continued",
  unknown: "unknown",
};
const ABOUT =
  "An override was given when the run was started. Unknown: the value is neither the preset's nor the default, because the default was another one then.";

/** @param {unknown} value */
const settingText = (value) => (typeof value === "string" ? value : JSON.stringify(value));

const LONGEST = 160; // characters; a longer value, such as a template, is folded

/** A long value is folded. @param {unknown} value */
export function settingValue(value) {
  const text = settingText(value);
  if (text.length <= LONGEST) return html`<code>${text}</code>`;
  return html`<details class="long-value"><summary><code>${text.slice(0, LONGEST / 2)}…</code></summary><code>${text}</code></details>`;
}

/** The name of a setting, which may be wrapped behind its dots and underscores. @param {{ name: string }} props */
export const SettingName = ({ name }) =>
  html`<code>${name.split(/(?<=[._])/).map((part) => html`${part}<wbr />`)}</code>`;

/** @param {{ run: string, query: URLSearchParams }} props */
export function ConfigurationPage({ run, query }) {
  const { data, error } = useResponse("/runs/{run}/configuration", { run });
  return html`<${Heading} breadcrumbs=${[
    ["Runs", "/"],
    [run, runUrl(run)],
  ]} title=${`Configuration of ${run}`}>${data && html`${data.preset ? `Preset ${data.preset}` : "No preset"} · ${data.settings.length} settings`}</${Heading}>
    <${Loading} data=${data} error=${error}>${data && html`<${Settings} configuration=${data} query=${query} />`}</${Loading}>`;
}

/** @param {{ configuration: Configuration, query: URLSearchParams }} props */
function Settings({ configuration, query }) {
  const text = query.get("text") ?? "";
  const onlyDiffering = query.get("differs") === "1";
  /** @param {string} name @param {string} value */
  const setFilter = (name, value) => {
    const newQuery = new URLSearchParams(location.search);
    newQuery.delete(name);
    if (value) newQuery.set(name, value);
    navigate(withQuery(location.pathname, newQuery), { replace: true });
  };
  const wanted = text.toLowerCase();
  const shown = configuration.settings.filter(
    ({ name, value, differs }) =>
      (!onlyDiffering || differs) && `${name} = ${settingText(value)}`.toLowerCase().includes(wanted),
  );
  return html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Search <input type="search" value=${text} onInput=${(event) => setFilter("text", event.target.value)} /></label>
      <label class="check"><input type="checkbox" checked=${onlyDiffering} onChange=${(event) => setFilter("differs", event.target.checked ? "1" : "")} /> Only what differs from its default</label>
      <span role="status">${shown.length} of ${configuration.settings.length}</span>
    </form>
    <${Origin} configuration=${configuration} />
    <${AsToml} toml=${configuration.toml} />
    ${shown.length === 0 && html`<${Empty}>No setting matches.</${Empty}>`}
    <${SettingsTables} configuration=${configuration} shown=${shown} />`;
}

/** A table of settings for each table of the configuration. @param {{ configuration: Configuration, shown: Setting[] }} props */
export function SettingsTables({ configuration, shown }) {
  const tables = [...new Set(shown.map(tableOf))];
  const hasPapers = configuration.settings.some(({ paper }) => paper !== null);
  return html`<div class="panels">
    ${tables.map((table) => html`<${SettingsTable} key=${table} table=${table} settings=${shown.filter((setting) => tableOf(setting) === table)} preset=${configuration.preset} hasPapers=${hasPapers} />`)}
  </div>`;
}

/** The table that a setting belongs to; settings of no table belong to the run. @param {Setting} setting */
const tableOf = ({ name }) => (name.includes(".") ? name.split(".")[0] : "");

/** @param {{ configuration: Configuration }} props */
function Origin({ configuration: { preset, edited } }) {
  const file = preset === null ? "" : ` of the preset ${preset}`;
  return html`<p class="about">${ABOUT}</p>
    ${edited.length > 0 && html`<p class="problem" role="note">The file${file} was edited after the run was created. It now has other values of: ${edited.join(", ")}.</p>`}`;
}

/** @param {{ toml: string }} props */
export function AsToml({ toml }) {
  const [state, setState] = useState("");
  async function copy() {
    try {
      await navigator.clipboard.writeText(toml);
      setState("Copied.");
    } catch {
      // Browsers allow it only on this machine and over HTTPS.
      setState("The browser does not allow copying. Open the text below and select it.");
    }
  }
  return html`<div class="toml">
    <button type="button" class="quiet" onClick=${copy}>Copy as TOML</button> <span role="status">${state}</span>
    <details><summary>As a file for <code>coevo run FILE</code></summary><pre tabindex="0" aria-label="Configuration as TOML">${toml}</pre></details>
  </div>`;
}

/** @param {{ table: string, settings: Setting[], preset: string | null, hasPapers: boolean }} props */
function SettingsTable({ table, settings, preset, hasPapers }) {
  const title = table || "run";
  const head = ["setting", "value", "from", "default", ...(hasPapers ? ["paper, or its code"] : [])];
  return html`<${Panel} title=${title} wide>
    <${Table} label=${`Settings of ${title}`} class="settings aligned" head=${head}>
      <tbody>${settings.map((setting) => html`<${SettingRow} key=${setting.name} setting=${setting} preset=${preset} hasPapers=${hasPapers} />`)}</tbody>
    </${Table}>
  </${Panel}>`;
}

/** @param {{ setting: Setting, preset: string | null, hasPapers: boolean }} props */
function SettingRow({ setting: { name, value, source, default: usual, differs, paper }, preset, hasPapers }) {
  const [table, ...rest] = name.split(".");
  const from = source === "preset" ? `preset ${preset ?? ""}` : SOURCES[source];
  return html`<tr class=${differs ? "differs" : ""}>
    <th scope="row"><${SettingName} name=${rest.join(".") || table} /></th>
    <td>${settingValue(value)}</td>
    <td><span class=${`source is-${source}`}>${from}</span></td>
    <td>${differs && usual !== null && settingValue(usual)}</td>
    ${hasPapers && html`<td>${paper && html`<${Paper} paper=${paper} />`}</td>`}
  </tr>`;
}

/** @param {{ paper: Schemas["PaperValue"] }} props */
function Paper({ paper: { value, reference, same } }) {
  const text = value.replaceAll("`", "");
  const verdict = same === null ? "" : same ? "same" : "differs";
  return html`${text} ${verdict && html`<span class=${same ? "s-right" : "s-ill_posed"}>${verdict}</span>`}${reference && html` <small>${reference.replaceAll("`", "")}</small>`}`;
}
