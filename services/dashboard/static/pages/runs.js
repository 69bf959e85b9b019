// All runs, the newest first, and a form that starts one.
import { html, useState } from "/static/preact.js";
import { address, post, useAnswer, useAnswers } from "../api.js";
import { Course } from "../charts.js";
import { ago, words } from "../format.js";
import { Empty, FlowRun, Heading, isLive, Legend, Loading, notBegun, Panel, Problem, Share, Status } from "../parts.js";
import { accuracyOf, courses, latest } from "../series.js";
import { go } from "../router.js";

const EVERY = 5_000;
const PREFECT_EVERY = 10_000;

export function RunsPage({ query }) {
  const after = query.get("after");
  const { data, error } = useAnswer("/runs", { limit: 20, after }, EVERY);
  return html`
    <${Heading} title="Runs" aside=${html`<${Start} />`}>
      Each run lets a Challenger and a Solver learn from each other, iteration after iteration.
    </${Heading}>
    ${!after && html`<${NotBegun} />`}
    <${Loading} data=${data} error=${error}>
      ${data && data.items.length === 0 && html`<${Empty}>No run yet. <code>coevo run demo</code> makes one, or the button above.</${Empty}>`}
      <div class="cards">${data && data.items.map((run) => html`<${RunCard} key=${run.name} run=${run} />`)}</div>
      <nav class="pager" aria-label="Pages of runs">
        ${after && html`<a href="/">Newest</a>`}
        ${data?.next && html`<a href=${`/?after=${encodeURIComponent(data.next)}`}>Older runs</a>`}
      </nav>
    </${Loading}>
  `;
}

/** What was accepted and is not at work: a run that waits in Prefect, or failed there, is in no list of the store. */
function NotBegun() {
  const { data, error } = useAnswer("/flow-runs", {}, PREFECT_EVERY);
  const flowRuns = notBegun(data);
  if (error) return html`<p class="meta">Which runs wait to begin is not known: ${error.message}</p>`;
  if (flowRuns.length === 0) return null;
  return html`<${Panel} title="Not begun yet" id="not-begun" about="Prefect has them; a run is listed below once its flow has begun.">
    ${flowRuns.map((one) => html`<${FlowRun} key=${one.flow_run} flowRun=${one}><a href=${`/runs/${encodeURIComponent(one.run)}`}>${one.run}</a></${FlowRun}>`)}
  </${Panel}>`;
}

function RunCard({ run }) {
  const every = isLive(run) ? EVERY : 0;
  const place = `/runs/${encodeURIComponent(run.name)}`;
  const figures = ["label_accuracy", "training_label_accuracy", "held_out", "test_time"];
  const { data } = useAnswers([[`${place}/iterations`], ...figures.map((name) => [`${place}/series`, { name }])], every);
  const [iterations, ...series] = data ?? [[]];
  const kept = courses(series.flat(), "label_accuracy").find((course) => course.over === "kept");
  const accuracy = kept ?? courses(series.flat(), "training_label_accuracy")[0];
  const which = kept ? "kept" : "in training";
  const { title, points } = accuracyOf(series.flat());
  const passAt1 = title.replace("accuracy", "pass@1");
  const now = iterations.findLast((one) => one.now);
  const done = iterations.filter((one) => one.iteration > 0 && one.stages.some((stage) => stage.stage === "check_health" && stage.status === "done")).length;
  const lines = [
    accuracy && { name: `label accuracy, ${which}, by ${words(accuracy.oracle)}`, colour: "var(--c-kept)", points: accuracy.points },
    points.length > 0 && { name: passAt1.toLowerCase(), colour: "var(--c-held-out)", points },
  ].filter(Boolean);
  return html`<article class="card run">
    <div class="words">
      <h2><a href=${place}>${run.name}</a> <${Status} status=${run.status} /></h2>
      <p class="meta">${run.preset ?? "no preset"} · seed ${run.seed} · ${ago(run.updated_at)}</p>
      <${Dots} done=${done} of=${run.iterations} now=${now} />
      <dl class="pairs">
        <dt>Label accuracy${accuracy ? html` <small>${which}, by ${words(accuracy.oracle)}</small>` : ""}</dt>
        <dd><${Share} estimate=${latest(accuracy)} of="n" /></dd>
        <dt>${passAt1}</dt>
        <dd><${Share} estimate=${points.at(-1)} of="questions" /></dd>
      </dl>
    </div>
    <div class="glance">
      ${lines.length > 0
        ? html`<${Course} lines=${lines} height=${170} label=${`Label accuracy and ${title.toLowerCase()} of ${run.name}`} />
            <${Legend} items=${lines.map((line) => [line.name, line.colour])} />`
        : html`<${Empty}>No iteration has been measured yet.</${Empty}>`}
    </div>
  </article>`;
}

function Dots({ done, of, now }) {
  const shown = Math.min(of, 24);
  const at = now ? now.iteration : 0;
  return html`<p class="dots">
    ${Array.from({ length: shown }, (_, i) => html`<i key=${i} class=${i < done ? "done" : i + 1 === at ? "current" : ""}></i>`)}
    <span>${done} of ${of} iterations${now ? ` · ${now.now.replaceAll("_", " ")} ${now.iteration}` : ""}</span>
  </p>`;
}

function Start() {
  const [open, setOpen] = useState(false);
  return html`<div class="start">
    <button type="button" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "Not now" : "Start a run"}</button>
    ${open && html`<${StartForm} />`}
  </div>`;
}

function StartForm() {
  const { data: presets, error } = useAnswer("/presets");
  const [wanted, setWanted] = useState({ preset: "demo", name: "", iterations: "", settings: "" });
  const [problem, setProblem] = useState(null);
  const [started, setStarted] = useState(null);
  const set = (name) => (event) => setWanted({ ...wanted, [name]: event.target.value });
  async function start(event) {
    event.preventDefault();
    setProblem(null);
    try {
      const body = { name: wanted.name || wanted.preset, preset: wanted.preset, overrides: settings(wanted.settings) };
      if (wanted.iterations) body.iterations = Number(wanted.iterations);
      const triggered = await post("/runs", body);
      setStarted({ ...triggered, run: body.name });
    } catch (failed) {
      setProblem(failed);
    }
  }
  const about = presets?.find((preset) => preset.name === wanted.preset)?.about;
  if (started) {
    return html`<div class="card form" role="status">
      <p><b>${started.run}</b> is ${started.state ? started.state.toLowerCase() : "triggered"} in Prefect. The list below says how it fares.</p>
      <p>${started.url && html`<a href=${started.url} target="_blank" rel="noopener">Its flow run in Prefect</a> · `}<a href=${`/runs/${encodeURIComponent(started.run)}`}>Its page</a></p>
    </div>`;
  }
  return html`<form class="card form" onSubmit=${start}>
    <${Problem} error=${error ?? problem} />
    <label>Preset
      <select value=${wanted.preset} onChange=${set("preset")}>${presets?.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select>
    </label>
    ${about && html`<p class="about">${about}</p>`}
    <label>Name <input value=${wanted.name} onInput=${set("name")} placeholder=${wanted.preset} pattern="[a-z0-9][a-z0-9._\\-]*" maxlength="64" /></label>
    <label>Iterations <input type="number" min="1" value=${wanted.iterations} onInput=${set("iterations")} placeholder="as the preset says" /></label>
    <label>Settings <textarea rows="2" value=${wanted.settings} onInput=${set("settings")} placeholder="dataset.candidates = 320"></textarea></label>
    <button>Start it</button>
  </form>`;
}

/** Lines of `name = value` as overrides; a value is JSON where it can be read so, else a word. */
function settings(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(
    lines.map((line) => {
      const [name, ...rest] = line.split("=");
      const value = rest.join("=").trim();
      try {
        return [name.trim(), JSON.parse(value)];
      } catch {
        return [name.trim(), value];
      }
    }),
  );
}
