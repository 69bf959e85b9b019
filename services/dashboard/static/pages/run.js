// One run: what it is at, how its labels and its Solver fare, and what went wrong.
import { html, useState } from "/static/preact.js";
import { post, useAnswer, useAnswers } from "../api.js";
import { Course, Parts, Steps, stageColour, Timeline } from "../charts.js";
import { ago, duration, number, percent, words } from "../format.js";
import { Action, Empty, FlowRun, Heading, isLive, Legend, Loading, notBegun, Panel, Problem, Status, Tile, VERDICTS } from "../parts.js";
import { accuracyOf, courses, HEAD, latest, rowsOf } from "../series.js";
import { AlertList } from "./alerts.js";
import { Audits, frameAt } from "./audits.js";
import { Matrix } from "./matrix.js";

const EVERY = 4_000;
const PREFECT_EVERY = 10_000;
const AUDITS_EVERY = 60_000; // they are worked out from all labels
const ORACLES = ["var(--c-kept)", "var(--c-held-out)", "var(--c-audit)", "var(--c-challenger)"];
const TRAINING_LABELS = [
  ["training_label_accuracy", "labels that are right", "var(--c-kept)"],
  ["training_labelled_share", "prompts labelled", "var(--c-audit)"],
  ["negative_label_accuracy", "accuracy of negative labels", "var(--c-challenger)"],
];
const SIGNALS = [
  ["policy_entropy", "Policy entropy", "nats a token", false],
  ["kl", "KL to the reference", "nats a token", false],
  ["pseudo_reward", "Pseudo-reward", "", false],
  ["response_length", "Tokens a vote", "tokens", false],
  ["vote_entropy", "Entropy of the votes", "nats", false],
  ["unparsed_share", "Votes without an answer", "", true],
  ["ill_posed_share", "Ill-posed questions", "", true],
  ["duplicate_share", "Duplicates", "", true],
];

export function RunPage({ run: name }) {
  const place = `/runs/${encodeURIComponent(name)}`;
  const [live, setLive] = useState(true);
  const { data, error, again: runAgain } = useAnswers(
    [[place], [`${place}/iterations`], [`${place}/series`], [`${place}/stages`], [`${place}/metrics`, { name: "reward_mean" }], [`${place}/checkpoints`], [`${place}/training-labels`], ["/alerts", { run: name, limit: 20 }]],
    live ? EVERY : 0,
  );
  const { data: flowRuns, again: flowRunsAgain } = useAnswer("/flow-runs", { run: name }, PREFECT_EVERY);
  const again = () => {
    runAgain();
    flowRunsAgain();
  };
  const waiting = notBegun(flowRuns);
  const wanted = !data || isLive(data[0]) || waiting.length > 0;
  if (wanted !== live) setLive(wanted);
  const starts = waiting.map((one) => html`<${FlowRun} key=${one.flow_run} flowRun=${one}><b>${data ? "Asked to go on" : "Not in the store"}</b></${FlowRun}>`);
  if (data === null && error) {
    return html`<${Heading} trail=${[["Runs", "/"]]} title=${name} />${waiting.length > 0 ? html`<section class="panel">${starts}</section>` : html`<${Problem} error=${error} />`}`;
  }
  return html`<${Loading} data=${data} error=${error}>${data && html`<${Run} place=${place} data=${data} again=${again} starts=${starts} />`}</${Loading}>`;
}

function Run({ place, data, again, starts }) {
  const [run, iterations, series, stages, rewards, checkpoints, trainingLabels, alerts] = data;
  const { data: audits } = useAnswer(`${place}/audits`, {}, isLive(run) ? AUDITS_EVERY : 0);
  const given = run.config.kind === "self_train";
  return html`
    <${Heading} trail=${[["Runs", "/"]]} title=${run.name} aside=${html`<${Status} status=${run.status} /><${Actions} place=${place} run=${run} again=${again} />`}>
      ${run.preset ?? "no preset"} · ${run.config.solver.reward.type} · seed ${run.seed} · begun ${ago(run.created_at)} ·${" "}
      <a href=${`/compare?run=${encodeURIComponent(run.name)}`}>compare with others</a>
    </${Heading}>
    ${starts.length > 0 && html`<section class="panel starts">${starts}</section>`}
    <${Now} stages=${stages} iterations=${iterations} />
    <${Tiles} series=${series} audits=${audits} />
    <div class="panels">
      ${(trainingLabels.length === 0 || courses(series, "label_accuracy").length > 0) && html`<${LabelAccuracy} place=${place} series=${series} run=${run.name} />`}
      <${Audits} audits=${audits} place=${place} />
      ${trainingLabels.length > 0 && html`<${TrainingLabels} steps=${trainingLabels} series=${series} />`}
      <${BenchmarkAccuracy} place=${place} series=${series} checkpoints=${checkpoints} />
      ${!given && html`<${Difficulty} place=${place} series=${series} />`}
      <${Became} place=${place} iterations=${iterations} series=${series} />
      <${Rewards} points=${rewards} />
      <${Matrix} place=${place} />
      <${Signals} series=${series} />
      <${Stages} stages=${stages} iterations=${iterations} place=${place} />
      <${Panel} title="Alerts" wide about="What the guard and the drift rules found.">
        <${AlertList} alerts=${alerts.items} again=${again} empty="None so far." />
      </${Panel}>
    </div>
  `;
}

function Actions({ place, run, again }) {
  const send = (path, body) => async () => {
    await post(`${place}/${path}`, body);
    again();
  };
  if (run.status === "paused") {
    return html`<div class="actions">
      ${["go on", "roll back", "stop"].map((decision) => html`<${Action} key=${decision} work=${send("decision", { decision })}>${decision}</${Action}>`)}
    </div>`;
  }
  return html`<div class="actions">
    ${isLive(run)
      ? html`<${Action} kind="quiet" work=${send("cancel", {})}>Cancel</${Action}>`
      : run.status !== "done" && run.status !== "stopped" && html`<${Action} work=${send("resume", {})}>Resume</${Action}>`}
  </div>`;
}

/** What is being done; a stage whose process died is running by the ledger, and by nobody. */
function Now({ stages, iterations }) {
  const begun = stages.filter((stage) => stage.status === "running");
  const running = begun.filter((stage) => iterations.some((one) => one.iteration === stage.iteration && one.now === stage.stage));
  const cut = begun.filter((stage) => !running.includes(stage));
  const failed = stages.findLast((stage) => stage.status === "failed");
  return html`<div aria-live="polite">
    ${running.map((stage) => html`<div key=${stage.stage} class="now">
      <b>${words(stage.stage)} ${stage.iteration}</b>
      ${stage.progress_total
        ? html`<progress max=${stage.progress_total} value=${stage.progress_done} aria-label=${`${words(stage.stage)} ${stage.iteration}`}></progress>
            <span>${number(stage.progress_done)} of ${number(stage.progress_total)} ${stage.progress_note}</span>`
        : html`<span>begun ${ago(stage.started_at)}</span>`}
    </div>`)}
    ${cut.map((stage) => html`<p key=${stage.stage} class="problem"><b>${words(stage.stage)} ${stage.iteration} was cut off:</b> nobody is at it; resuming the run goes on with it.</p>`)}
    ${failed && html`<p class="problem"><b>${words(failed.stage)} ${failed.iteration} failed:</b> <bdi>${failed.error}</bdi></p>`}
  </div>`;
}

function Tiles({ series, audits }) {
  const accuracy = courses(series, "label_accuracy");
  const kept = accuracy.find((course) => course.over === "kept");
  const all = accuracy.find((course) => course.over === "all" && course.oracle === kept?.oracle);
  const onBenchmark = accuracyOf(series);
  const share = courses(series, "kept_share")[0];
  const [first, last] = [onBenchmark.points[0], onBenchmark.points.at(-1)];
  const gain = first && last !== first ? `${percent(first.value)} before training` : "";
  const inTraining = courses(series, "training_label_accuracy")[0];
  const rest = (course) => html`by ${words(course.oracle)}, iteration ${latest(course).iteration}<br />${frameAt(audits, latest(course))}`;
  return html`<dl class="tiles">
    ${(kept || !inTraining) && html`<${Tile} label="Label accuracy, kept" estimate=${latest(kept)} note=${kept && rest(kept)} />
      <${Tile} label="Label accuracy, all" estimate=${latest(all)} note=${all && rest(all)} />`}
    ${inTraining && html`<${Tile} label="Label accuracy, training" estimate=${latest(inTraining)} note=${`by ${words(inTraining.oracle)}, iteration ${latest(inTraining).iteration}`} />`}
    <${Tile} label=${onBenchmark.title.replace("accuracy", "pass@1")} estimate=${last} note=${gain} />
    <${Tile} label="Kept" estimate=${share?.points.at(-1)} note="of the candidates" />
  </dl>`;
}

function LabelAccuracy({ place, series, run }) {
  const found = courses(series, "label_accuracy");
  const oracles = [...new Set(found.map((course) => course.oracle))];
  const lines = found.map((course) => ({
    name: `${course.over} by ${words(course.oracle)}`,
    colour: ORACLES[oracles.indexOf(course.oracle) % ORACLES.length],
    dash: course.over === "all" ? "4 4" : "none",
    points: course.points.map((point) => ({
      ...point,
      // Of an estimate nobody has said that a label is wrong.
      href: point.estimated ? `${place}/${point.iteration}` : `${place}/${point.iteration}?oracle=${course.oracle}&oracle_verdict=wrong${course.over === "kept" ? "&verdict=kept" : ""}`,
    })),
  }));
  return html`<${Panel} title="Pseudo-label accuracy" wide id="label-accuracy" table=${{ head: HEAD, rows: rowsOf(lines, percent) }}
    about="The share of audited pseudo-labels that an oracle agrees with: solid over the kept questions, dashed over all. Bands are 95% intervals. A point leads to the labels that are wrong, a hollow one, an estimate, to its iteration.">
    ${lines.length
      ? html`<${Course} lines=${lines} height=${300} label="Pseudo-label accuracy by iteration" />
          <${Legend} items=${lines.map((line) => [line.name, line.colour, line.dash !== "none"])} />`
      : html`<${Empty}>No label has been audited yet. Of a run made before there were series, <code>coevo series ${run} --refresh</code> works them out.</${Empty}>`}
  </${Panel}>`;
}

/** How right the labels are that a method makes itself, anew at every training step. */
function TrainingLabels({ steps, series }) {
  const lines = TRAINING_LABELS.flatMap(([name, title, colour]) => courses(series, name).map((course) => ({ name: title, colour, points: course.points })));
  const byStep = steps.filter((one) => one.accuracy).map(({ iteration, step, accuracy }) => ({ iteration, step, ...accuracy }));
  const rows = byStep.map((point) => [point.iteration, point.step, percent(point.value), `${percent(point.lo)} – ${percent(point.hi)}`, point.n]);
  return html`<${Panel} title="Labels made in training" table=${{ head: ["iteration", "step", "labels right", "95% interval", "n"], rows }}
    about=${`The share of right labels among those that the Solver's method made in training, ${steps[0].oracle === "given" ? "compared with the prompts' own answers" : "by the exact oracle"}. Prompts without a label do not count. Later iterations are darker.`}>
    <h3>By step</h3>
    ${byStep.length ? html`<${Steps} points=${byStep} share label="Right labels by step of the training" />` : html`<${Empty}>No prompt was labelled.</${Empty}>`}
    ${lines.length > 0 && html`<h3>By iteration</h3><${Course} lines=${lines} height=${170} label="Labels made in training, by iteration" />
      <${Legend} items=${lines.map((line) => [line.name, line.colour])} />`}
  </${Panel}>`;
}

function BenchmarkAccuracy({ place, series, checkpoints }) {
  const solvers = new Map(checkpoints.filter((one) => one.role !== "challenger").map((one) => [one.iteration, one]));
  const { title, about, points } = accuracyOf(series);
  const line = {
    name: "pass@1",
    colour: "var(--c-held-out)",
    points: points.map((point) => {
      const solver = solvers.get(point.iteration);
      return { ...point, href: solver && `${place}/checkpoints/${solver.role}/${solver.iteration}` };
    }),
  };
  return html`<${Panel} title=${title} about=${about} table=${{ head: HEAD, rows: rowsOf([line], percent) }}>
    ${points.length ? html`<${Course} lines=${[line]} label=${`${title} by iteration`} />` : html`<${Empty}>Nothing evaluated yet.</${Empty}>`}
  </${Panel}>`;
}

function Difficulty({ place, series }) {
  const lines = courses(series, "p_hat").map((course, i) => ({
    name: course.over || "all",
    colour: i ? "var(--c-kept)" : "var(--c-challenger)",
    points: course.points.map((point) => ({ ...point, href: `${place}/${point.iteration}` })),
  }));
  return html`<${Panel} title="Difficulty" about="Mean p̂: how much the Solver agrees with itself. At ½ it learns most." table=${{ head: HEAD, rows: rowsOf(lines, percent) }}>
    ${lines.length
      ? html`<${Course} lines=${lines} label="Mean p-hat by iteration" /><${Legend} items=${lines.map((line) => [line.name, line.colour])} />`
      : html`<${Empty}>Nothing labelled yet.</${Empty}>`}
  </${Panel}>`;
}

function Became({ place, iterations }) {
  const asked = iterations.filter((one) => one.verdicts && Object.keys(one.verdicts).length);
  const rows = asked.flatMap((one) =>
    VERDICTS.filter((verdict) => one.verdicts[verdict]).map((verdict) => ({
      iteration: one.iteration,
      verdict,
      questions: one.verdicts[verdict],
      share: one.verdicts[verdict] / one.questions,
      href: `${place}/${one.iteration}?verdict=${verdict}`,
    })),
  );
  return html`<${Panel} title="What became of the questions" table=${{ head: ["iteration", "verdict", "questions", "share"], rows: rows.map((row) => [row.iteration, words(row.verdict), number(row.questions), percent(row.share)]) }}>
    ${rows.length
      ? html`<${Parts} rows=${rows} height=${330} label="Verdicts by iteration" />
          <${Legend} items=${VERDICTS.map((verdict) => [words(verdict), `var(--v-${verdict})`])} />`
      : html`<${Empty}>Nothing labelled yet.</${Empty}>`}
  </${Panel}>`;
}

function Rewards({ points }) {
  const of = (role) => points.filter((point) => point.role === role && point.value !== null);
  return html`<${Panel} title="Reward while training" about="The mean of each step; later iterations are darker.">
    ${["challenger", "solver"].map((role) =>
      of(role).length ? html`<h3>${role === "solver" ? "Solver" : "Challenger"}</h3><${Steps} points=${of(role)} label=${`Reward of the ${role} by step`} />` : null,
    )}
    ${points.length === 0 && html`<${Empty}>No training has ended yet.</${Empty}>`}
  </${Panel}>`;
}

function Signals({ series }) {
  const found = SIGNALS.map(([name, title, unit, share]) => {
    const lines = courses(series, name).map((course, i) => ({
      name: [course.over, course.oracle && `by ${words(course.oracle)}`].filter(Boolean).join(" ") || title,
      colour: ORACLES[i % ORACLES.length],
      points: course.points,
    }));
    return { name, title, unit, share, lines };
  }).filter((signal) => signal.lines.length);
  const rows = found.flatMap((signal) => rowsOf(signal.lines.map((line) => ({ ...line, name: `${signal.title}: ${line.name}` })), signal.share ? percent : number));
  return html`<${Panel} title="Signs of collapse" wide table=${{ head: HEAD, rows }}
    about="Entropy that goes, a KL that jumps with the pseudo-reward, answers that shrink or run on, questions that repeat.">
    ${found.length === 0 && html`<${Empty}>No iteration has been measured yet.</${Empty}>`}
    <div class="small-multiples">
      ${found.map((signal) => html`<div key=${signal.name}>
        <h3>${signal.title}${signal.unit && html` <small>${signal.unit}</small>`}</h3>
        <${Course} lines=${signal.lines} share=${signal.share} unit=${signal.unit} height=${150} label=${signal.title} />
      </div>`)}
    </div>
  </${Panel}>`;
}

function Stages({ stages, iterations, place }) {
  const names = [...new Set(stages.map((stage) => stage.stage))];
  const rows = stages.map((stage) => [stage.iteration, words(stage.stage), stage.status, stage.attempt, duration(stage.seconds), stage.error ?? ""]);
  return html`<${Panel} title="Where the time went" wide table=${{ head: ["iteration", "stage", "status", "attempt", "took", "error"], rows }}>
    ${stages.length ? html`<${Timeline} stages=${stages} now=${Date.now()} label="Stages by iteration" /><${Legend} items=${names.map((name) => [words(name), stageColour(name)])} />` : html`<${Empty}>Nothing begun yet.</${Empty}>`}
    <ul class="links">
      ${iterations.filter((one) => one.questions).map((one) => html`<li key=${one.iteration}><a href=${`${place}/${one.iteration}`}>Iteration ${one.iteration}</a> <small>${number(one.questions)} questions, ${duration(one.seconds)}</small></li>`)}
    </ul>
  </${Panel}>`;
}
