// One question: what was asked, every vote, what they came to, what oracles say, and where it went.
import { html, useState } from "/static/preact.js";
import { useAnswer, useAnswers } from "../api.js";
import { moment, number, percent, words } from "../format.js";
import { Empty, Heading, Loading, Panel, Problem, Said, Verdict } from "../parts.js";
import { Answer, Typeset } from "../math.js";
import { useNeighbours } from "../neighbours.js";
import { go } from "../router.js";
import { Key, useShortcuts } from "../shortcuts.js";
import { wantedOf } from "./iteration.js";

const href = (id) => {
  const [run, role, t] = id.split("/");
  return `/runs/${encodeURIComponent(run)}/checkpoints/${role}/${t}`;
};
const Checkpoint = ({ id }) => html`<a href=${href(id)}>${id}</a>`;

export function QuestionPage({ run, t, index, query }) {
  const place = `/runs/${encodeURIComponent(run)}/${t}`;
  const api = `/runs/${encodeURIComponent(run)}/iterations/${t}/questions/${index}`;
  const { data, error } = useAnswer(api);
  const back = String(query) && `?${query}`;
  return html`
    <${Heading} trail=${[["Runs", "/"], [run, `/runs/${encodeURIComponent(run)}`], [`iteration ${t}`, `${place}${back}`]]} title=${`Question ${index}`}
      aside=${html`<${Steps} place=${place} list=${`/runs/${encodeURIComponent(run)}/iterations/${t}/questions`} index=${Number(index)} query=${query} />`} />
    <${Loading} data=${data} error=${error}>${data && html`<${Question} question=${data} api=${api} place=${place} />`}</${Loading}>
  `;
}

/** To the questions before and after it, of those that the address filters; at an end it says so. */
function Steps({ place, list, index, query }) {
  const wanted = wantedOf(query);
  const found = useNeighbours(list, wanted, index);
  const [said, setSaid] = useState("");
  const hrefOf = ({ index: other, page }) => {
    const next = new URLSearchParams(query);
    next.delete("after");
    if (page) next.set("after", page);
    return `${place}/${other}${String(next) && `?${next}`}`;
  };
  const filtered = Object.keys(wanted).some((name) => name !== "after");
  const end = (which) => (found.missing ? "It is not in the list that was filtered." : `It is the ${which} ${filtered ? "of the list" : "question"}.`);
  const step = (to, which) => () => found && (to ? go(hrefOf(to)) : setSaid(end(which)));
  const { before, after } = found ?? {};
  useShortcuts({ k: step(before, "first"), j: step(after, "last") });
  return html`<nav class="steps" aria-label="Questions">
    <span role="status">${said}</span>
    ${before && html`<a href=${hrefOf(before)} rel="prev">← ${before.index} <${Key}>k</${Key}></a>`}
    ${after && html`<a href=${hrefOf(after)} rel="next">${after.index} → <${Key}>j</${Key}></a>`}
  </nav>`;
}

/** The place of the label's class: the one with its answer, else the largest. */
function ofLabel(question) {
  const found = question.classes.findIndex((group) => group.answer === question.answer);
  return Math.max(found, 0);
}

function Question({ question, api, place }) {
  return html`
    <section class="panel wide asked">
      <h2 class="sr">The question</h2>
      ${question.text === null ? html`<p class="none">Malformed: no question could be read from what the Challenger wrote.</p>` : html`<p class="prose"><${Typeset} text=${question.text} /></p>`}
      <p class="meta">
        <${Verdict} verdict=${question.verdict} />
        ${question.m !== null && html` · pseudo-label <b><${Answer} text=${question.answer} /></b> · p̂ ${number(question.p_hat)}: ${question.votes} of ${question.denominator === "all" ? question.m : question.parsed} ${question.denominator === "all" ? "rollouts" : "answers"}`}
        ${question.oracles.map((said) => html` · <${Said} key=${said.oracle} said=${said} />`)}
      </p>
    </section>
    <div class="panels">
      <${Groups} question=${question} />
      <${Audit} question=${question} />
      <${Votes} question=${question} api=${api} />
      <${Lineage} question=${question} place=${place} />
    </div>`;
}

function Groups({ question }) {
  const unanswered = question.m === null ? 0 : question.m - question.parsed;
  const label = ofLabel(question);
  return html`<${Panel} title="Answers" about="The rollouts' answers, grouped where the grader finds them equal.">
    ${question.classes.length === 0 && html`<${Empty}>Nobody answered it.</${Empty}>`}
    <ol class="groups">
      ${question.classes.map((group, i) => html`<li key=${group.answer} class=${i === label ? "first" : ""}>
        <span><${Answer} text=${group.answer} /></span>
        <i class="track"><i style=${{ width: percent(group.votes / question.m) }}></i></i>
        <b>${group.votes}</b>
      </li>`)}
      ${unanswered > 0 && html`<li class="unanswered"><span>no answer</span><i class="track"><i style=${{ width: percent(unanswered / question.m) }}></i></i><b>${unanswered}</b></li>`}
    </ol>
    ${question.unknown > 0 && html`<p class="about">${question.unknown} comparisons could not be decided; they abstain.</p>`}
  </${Panel}>`;
}

function Audit({ question }) {
  return html`<${Panel} title="Audits" about="What oracles say of the pseudo-label. Training never sees it.">
    ${question.oracles.length + question.annotations.length === 0 && html`<${Empty}>No oracle has said anything.</${Empty}>`}
    <dl class="pairs">
      ${question.oracles.map((said) => html`<dt key=${said.oracle}>${words(said.oracle)}</dt><dd><span class=${`said s-${said.verdict}`}>${words(said.verdict)}</span>${said.truth !== null && html` · its answer <${Answer} text=${said.truth} />`}</dd>`)}
      ${question.annotations.map((word) => html`<dt key=${word.annotator}><bdi>${word.annotator}</bdi>, by hand</dt><dd><span class=${`said s-${word.verdict}`}>${word.verdict === "unknown" ? "skipped" : words(word.verdict)}</span>
        <small> ${moment(word.made_at)}${word.note && html` · <bdi>${word.note}</bdi>`}</small></dd>`)}
      ${question.given_answer !== null && html`<dt>given with the prompt</dt><dd><${Answer} text=${question.given_answer} /></dd>`}
    </dl>
  </${Panel}>`;
}

function Votes({ question, api }) {
  const label = ofLabel(question); // other spellings of its answer are in its class too
  return html`<${Panel} title="Votes" wide about="Every rollout of the Solver. A vote opens what it wrote, where the run keeps it.">
    ${question.rollouts.length === 0
      ? html`<${Empty}>It was not put to the Solver.</${Empty}>`
      : html`<div class="votes">${question.rollouts.map((vote) => html`<${Vote} key=${vote.sample_index} vote=${vote} agrees=${vote.in_class === label} api=${api} />`)}</div>`}
  </${Panel}>`;
}

function Vote({ vote, agrees, api }) {
  const [open, setOpen] = useState(location.hash === `#vote-${vote.sample_index}`);
  const { data, error } = useAnswer(open ? `${api}/votes/${vote.sample_index}` : null);
  return html`<details class="vote" id=${`vote-${vote.sample_index}`} open=${open} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>
      <span class="nr">${vote.sample_index}</span>
      <span class=${agrees ? "with" : ""}><${Answer} text=${vote.answer} /></span>
      <small>${number(vote.tokens)} tokens${vote.finish_reason === "length" ? ", cut off" : ""}${vote.mean_entropy === null ? "" : ` · ${number(vote.mean_entropy)} nats a token`}</small>
    </summary>
    <${Problem} error=${error} />
    ${data && (data.text === null ? html`<p class="none">Its text is not kept: the run keeps those that <code>rollout_text</code> says.</p>` : html`<p class="prose"><${Typeset} text=${data.text} /></p>`)}
    <p class="meta">by <${Checkpoint} id=${vote.checkpoint} /> · seed ${vote.seed}</p>
  </details>`;
}

function Lineage({ question, place }) {
  const voters = [...new Set(question.rollouts.map((vote) => vote.checkpoint))];
  return html`<${Panel} title="Where it comes from, and where it went" wide>
    <ol class="lineage">
      <li><b>Written</b> ${question.checkpoint ? html`by <${Checkpoint} id=${question.checkpoint} />, seed ${question.seed}` : "by nobody: a given prompt"}
        <details><summary>What was written</summary><pre tabindex="0">${question.raw}</pre></details></li>
      ${question.cluster && html`<li><b>Compared:</b> ${question.cluster.size > 1 ? html`one of <a href=${`${place}?cluster=${question.cluster.number}`}>${number(question.cluster.size)} that are alike</a>` : "like no other of its iteration"}</li>`}
      ${voters.length > 0 && html`<li><b>Voted on</b> by ${voters.map((id) => html`<${Checkpoint} key=${id} id=${id} /> `)}</li>`}
      <li><b>Trained on</b> ${question.trained_on.length === 0 ? "by nobody" : question.trained_on.map((row) => html`<span key=${row.checkpoint}>by <${Checkpoint} id=${row.checkpoint} />${` at ${row.steps.length === 1 ? "step" : "steps"} ${row.steps.join(", ")}`} </span>`)}</li>
    </ol>
  </${Panel}>`;
}
