// A run's page as a file without a server: the page, what its trainings measured, some questions, and its settings.
import { html, options, render } from "/static/preact.js";
import { report, useResponse, useResponses } from "./api.js";
import { dateTime, number } from "./format.js";
import { AsToml, SettingsTables } from "./pages/configuration.js";
import { Distribution } from "./pages/iteration.js";
import { QuestionTable } from "./pages/questions.js";
import { RunPage } from "./pages/run.js";
import { StepCurves } from "./pages/step_curves.js";
import { Empty, Panel } from "./parts.js";

const MOST_QUESTIONS = 6; // of each iteration; run_page.py has the same number
const NO_FILTER = new URLSearchParams();

const Nothing = () => null;
// There is nothing to press, and no link leads anywhere.
options.vnode = (vnode) => {
  const { type, props } = vnode;
  if (type === "button") vnode.type = Nothing;
  if (type === "a") {
    vnode.type = "span";
    vnode.props = /** @type {typeof props} */ ({ ...props, href: undefined });
  }
};

/** What each training measured by step. @param {{ run: string, iterations: number[] }} props */
function Trainings({ run, iterations }) {
  const { data } = useResponses(
    iterations.map((iteration) => /** @type {const} */ (["/runs/{run}/metrics", { run, iteration }])),
  );
  const metrics = (data ?? []).flat();
  return ["challenger", "solver"].map((role) => {
    const ofRole = metrics.filter((metric) => metric.role === role);
    const name = role === "solver" ? "Solver" : "Challenger";
    return (
      ofRole.length > 0 &&
      html`<${Panel} key=${role} title=${`The ${name}'s training by step`} wide about="The mean of each step. The later the iteration, the stronger its colour.">
        <${StepCurves} metrics=${ofRole} without="reward_mean" />
      </${Panel}>`
    );
  });
}

/** @param {{ run: Schemas["RunWithConfig"], t: number }} props */
function Questions({ run, t }) {
  const { data } = useResponses([
    ["/runs/{run}/iterations/{iteration}/statistics", { run: run.name, iteration: t }],
    [
      "/runs/{run}/iterations/{iteration}/questions",
      { run: run.name, iteration: t, verdict: ["kept"], limit: MOST_QUESTIONS },
    ],
  ]);
  if (!data) return null;
  const [statistics, { items }] = data;
  const which = items.length < MOST_QUESTIONS ? "All of them" : `The first ${number(items.length)}`;
  return html`<h2 class="part">Questions of iteration ${t}</h2>
    <div class="panels">
      <${Distribution} run=${run} url="" query=${NO_FILTER} statistics=${statistics} />
      <${Panel} title="Kept questions" wide about=${`${which}, in the order in which they were generated.`}>
        ${items.length ? html`<${QuestionTable} questions=${items} url="" query=${NO_FILTER} label=${`Questions of iteration ${t}`} />` : html`<${Empty}>None.</${Empty}>`}
      </${Panel}>
    </div>`;
}

/** @param {{ run: string }} props */
function Configuration({ run }) {
  const { data } = useResponse("/runs/{run}/configuration", { run });
  if (!data) return null;
  return html`<h2 class="part">Settings that differ from their defaults</h2>
    <${AsToml} toml=${data.toml} />
    <${SettingsTables} configuration=${data} shown=${data.settings.filter(({ differs }) => differs)} />`;
}

/** @param {NonNullable<typeof report>} props */
function Report({ run: name, written, asked, begun }) {
  const { data: run } = useResponse("/runs/{run}", { run: name });
  return html`<main id="main">
      <p class="meta">Report of ${dateTime(written)}. It shows the run as it was then.</p>
      <${RunPage} run=${name} />
      <${Trainings} run=${name} iterations=${begun} />
      ${run && [...asked].reverse().map((t) => html`<${Questions} key=${t} run=${run} t=${t} />`)}
      <${Configuration} run=${name} />
    </main>`;
}

const container = document.getElementById("app");
if (container && report) render(html`<${Report} ...${report} />`, container);
