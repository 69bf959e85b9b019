// Runs beside each other: the same figure of each, iteration by iteration, and label accuracy by one and the same oracle.
import { html } from "/static/preact.js";
import { useAnswer, useAnswers } from "../api.js";
import { Course } from "../charts.js";
import { number, percent, words } from "../format.js";
import { Empty, Heading, Legend, Loading, Panel, Share } from "../parts.js";
import { go } from "../router.js";
import { courses, HEAD, latest, rowsOf } from "../series.js";

const COLOURS = ["var(--k1)", "var(--k2)", "var(--k3)", "var(--k4)", "var(--k5)", "var(--k6)"];

/** What is compared: label accuracy only by `oracle`, since others grade differently; null where no run has any. */
const figures = (oracle) => [
  { name: "held_out", title: "Held-out accuracy", about: "pass@1 of each Solver on questions that nobody trained on.", share: true },
  { name: "test_time", title: "Test-time accuracy", about: "pass@1 of each Solver on the very questions that it trains on.", share: true },
  { name: "label_accuracy", over: "kept", oracle, title: oracle ? `Label accuracy, kept, by ${words(oracle)}` : "Label accuracy, kept", share: true },
  { name: "training_label_accuracy", title: "Label accuracy in training", about: "The share of right labels among those that the Solver's method made in training.", share: true },
  { name: "kept_share", title: "Kept share", about: "Of the candidates.", share: true },
  { name: "policy_entropy", title: "Policy entropy", about: "nats a token, at the end of the Solver's training.", share: false },
];

/** Figures that most runs do not have; without any there is no panel. */
const ONLY_WHERE_MADE = ["test_time", "training_label_accuracy"];

const courseOf = (series, { name, over, oracle }) =>
  courses(series, name).find((course) => (!over || course.over === over) && (oracle === undefined || course.oracle === oracle));

const oraclesOf = ({ series }) => courses(series, "label_accuracy").filter((course) => course.over === "kept").map((course) => course.oracle);

/** The oracles that the runs have, those that most have first. */
function oraclesIn(runs) {
  const all = runs.flatMap(oraclesOf);
  const having = (oracle) => all.filter((one) => one === oracle).length;
  return [...new Set(all)].sort((a, b) => having(b) - having(a) || a.localeCompare(b));
}

const place = (names, oracle) => `/compare?${new URLSearchParams([...names.map((one) => ["run", one]), ...(oracle ? [["oracle", oracle]] : [])])}`;

export function ComparePage({ query }) {
  const chosen = query.getAll("run").slice(0, COLOURS.length);
  const wanted = query.get("oracle");
  const { data: page, error } = useAnswer("/runs", { limit: 100 });
  const { data, error: refused } = useAnswers(chosen.length ? chosen.flatMap((run) => [[`/runs/${encodeURIComponent(run)}`], [`/runs/${encodeURIComponent(run)}/series`]]) : null);
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((one) => one !== name) : [...chosen, name].slice(-COLOURS.length);
    go(place(next, wanted), { replace: true });
  };
  const runs = data ? chosen.map((name, i) => ({ name, colour: COLOURS[i], run: data[2 * i], series: data[2 * i + 1] })) : [];
  return html`<${Heading} title="Compare runs">Up to ${COLOURS.length} runs, by the same figures. Bands are 95% intervals.</${Heading}>
    <${Loading} data=${page} error=${error}>
      <fieldset class="chips"><legend class="sr">Runs</legend>
        ${page?.items.map((run) => html`<button key=${run.name} type="button" aria-pressed=${chosen.includes(run.name)} onClick=${() => toggle(run.name)}>
          ${chosen.includes(run.name) && html`<i class="swatch" style=${{ background: COLOURS[chosen.indexOf(run.name)] }}></i>`}${run.name}
        </button>`)}
      </fieldset>
    </${Loading}>
    ${chosen.length === 0
      ? html`<${Empty}>Choose two or more.</${Empty}>`
      : html`<${Loading} data=${data} error=${refused}><${Beside} runs=${runs} wanted=${wanted} choose=${(oracle) => go(place(chosen, oracle), { replace: true })} /></${Loading}>`}`;
}

function Beside({ runs, wanted, choose }) {
  const found = oraclesIn(runs);
  const oracles = wanted && !found.includes(wanted) ? [wanted, ...found] : found; // of an address that was given on
  const oracle = wanted ?? oracles[0] ?? null;
  const compared = figures(oracle).filter(({ name }) => !ONLY_WHERE_MADE.includes(name) || runs.some(({ series }) => courses(series, name).length));
  return html`
    ${oracle && html`<form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label>Label accuracy by <select value=${oracle} onChange=${(event) => choose(event.target.value)}>
        ${oracles.map((one) => html`<option key=${one} value=${one}>${words(one)}</option>`)}
      </select></label>
      <${Lacking} runs=${runs} oracle=${oracle} />
    </form>`}
    <div class="panels">
      ${compared.map((figure) => html`<${Figure} key=${figure.name} figure=${figure} runs=${runs} />`)}
      <${Stand} runs=${runs} compared=${compared.slice(0, -1)} />
    </div>`;
}

/** Which of the runs the oracle has not graded, and who has: a line that is not there is missed by nobody. */
function Lacking({ runs, oracle }) {
  const lacking = runs.filter((run) => !oraclesOf(run).includes(oracle));
  if (lacking.length === 0) return null;
  const by = (run) => (oraclesOf(run).length ? `not audited by ${words(oracle)}, but by ${oraclesOf(run).map(words).join(", ")}` : "audited by nobody");
  return html`<span role="status">${lacking.map((run) => html`<span key=${run.name}><b>${run.name}</b> was ${by(run)}. </span>`)}</span>`;
}

const lineOf = (figure) => ({ name, colour, series }) => {
  const course = courseOf(series, figure);
  if (!course) return [];
  const points = course.points.map((point) => ({ ...point, href: `/runs/${encodeURIComponent(name)}` }));
  return [{ name: course.oracle ? `${name} by ${words(course.oracle)}` : name, colour, points }];
};

function Figure({ figure, runs }) {
  const { title, share } = figure;
  const lines = runs.flatMap(lineOf(figure));
  const about = figure.about ?? "An oracle is compared with itself only. What is estimated from p̂ is hollow.";
  return html`<${Panel} title=${title} about=${about} table=${{ head: HEAD, rows: rowsOf(lines, share ? percent : number) }}>
    ${lines.length ? html`<${Course} lines=${lines} share=${share} label=${title} /><${Legend} items=${lines.map((line) => [line.name, line.colour])} />` : html`<${Empty}>None of them has it.</${Empty}>`}
  </${Panel}>`;
}

function Cell({ series, figure }) {
  const course = courseOf(series, figure);
  if (!course) return html`<span class="none">${figure.oracle ? `not by ${words(figure.oracle)}` : "–"}</span>`;
  return html`<${Share} estimate=${latest(course)} />${course.oracle && html` <small>· by ${words(course.oracle)}</small>`}`;
}

function Stand({ runs, compared }) {
  return html`<${Panel} title="Where each stands" wide>
    <div class="scroll" tabindex="0" role="region" aria-label="Where each stands"><table>
      <caption class="sr">The last figures of each run</caption>
      <thead><tr><th scope="col">run</th><th scope="col">method</th><th scope="col">status</th>${compared.map(({ name, title }) => html`<th key=${name} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${runs.map(({ name, run, series }) => html`<tr key=${name}>
        <th scope="row"><a href=${`/runs/${encodeURIComponent(name)}`}>${name}</a></th><td>${run.config.solver.reward.type}</td><td>${run.status}</td>
        ${compared.map((figure) => html`<td key=${figure.name}><${Cell} series=${series} figure=${figure} /></td>`)}
      </tr>`)}</tbody>
    </table></div>
  </${Panel}>`;
}
