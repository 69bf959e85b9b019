// The settings in which compared runs differ.
import { html } from "/static/preact.js";
import { Empty, Fold, Panel, Table } from "../parts.js";
import { runUrl } from "../router.js";
import { SettingName, settingValue } from "./configuration.js";

/** @typedef {Schemas["SettingsComparison"]["settings"][number]} Setting */

/**
 * The settings that all runs have come first; those of one kind of run, or of one method, are behind a fold.
 *
 * @param {{ comparison: Schemas["SettingsComparison"] }} props
 */
export function DifferingSettings({ comparison: { runs, settings } }) {
  if (runs.length < 2) return null;
  /** @param {Setting} setting */
  const isOfAll = ({ values }) => runs.every((run) => run in values);
  const ofAll = settings.filter(isOfAll);
  const others = settings.filter((setting) => !isOfAll(setting));
  return html`<${Panel} title="Settings that differ" wide id="settings" about="A run's name leads to its whole configuration.">
    ${ofAll.length > 0 && html`<${SettingsTable} runs=${runs} settings=${ofAll} label="Settings that differ" />`}
    ${settings.length === 0 && html`<${Empty}>These runs have the same settings.</${Empty}>`}
    <${Fold} title="Settings that only some of these runs have" count=${others.length}><${SettingsTable} runs=${runs} settings=${others} label="Settings that only some runs have" /></${Fold}>
  </${Panel}>`;
}

/** @param {{ runs: string[], settings: Setting[], label: string }} props */
function SettingsTable({ runs, settings, label }) {
  const links = runs.map((run) => html`<a href=${`${runUrl(run)}/configuration`}>${run}</a>`);
  return html`<${Table} label=${label} class="settings" tall head=${["setting", ...links]}>
    <tbody>${settings.map(
      ({ name, values }) => html`<tr key=${name}>
        <th scope="row"><${SettingName} name=${name} /></th>
        ${runs.map((run) => html`<td key=${run}>${run in values ? settingValue(values[run]) : html`<span class="none">no such setting</span>`}</td>`)}
      </tr>`,
    )}</tbody>
  </${Table}>`;
}
