// The settings in which compared runs differ.
import { html } from "/static/preact.js";
import { Empty, Panel } from "../parts.js";
import { runUrl } from "../router.js";
import { SettingName, settingValue } from "./configuration.js";

/**
 * @param {{ comparison: Schemas["SettingsComparison"] }} props
 */
export function DifferingSettings({ comparison: { runs, settings } }) {
  if (runs.length < 2) return null;
  const table = html`<div class="scroll tall" tabindex="0" role="region" aria-label="Settings that differ"><table class="settings">
    <thead><tr><th scope="col">setting</th>${runs.map((run) => html`<th scope="col" key=${run}><a href=${`${runUrl(run)}/configuration`}>${run}</a></th>`)}</tr></thead>
    <tbody>${settings.map(
      ({ name, values }) => html`<tr key=${name}>
        <th scope="row"><${SettingName} name=${name} /></th>
        ${runs.map((run) => html`<td key=${run}>${run in values ? settingValue(values[run]) : html`<span class="none">no such setting</span>`}</td>`)}
      </tr>`,
    )}</tbody>
  </table></div>`;
  return html`<${Panel} title="Settings that differ" wide id="settings" about="A run's name leads to its whole configuration.">
    ${settings.length ? table : html`<${Empty}>These runs have the same settings.</${Empty}>`}
  </${Panel}>`;
}
