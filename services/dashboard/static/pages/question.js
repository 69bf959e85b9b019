// The page of one question: its text, its votes, the answers they are grouped into, its audits, and its lineage.
import { html, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { dateTime, humanise, number, percent } from "../format.js";
import { Answer, Typeset } from "../math.js";
import { useNeighbours } from "../neighbours.js";
import { Empty, ErrorMessage, Heading, Loading, OracleVerdict, Panel, Verdict } from "../parts.js";
import { checkpointUrl, navigate, runUrl, trainingUrl, withQuery } from "../router.js";
import { KeyHint, useShortcuts } from "../shortcuts.js";
import { filtersIn } from "./questions.js";

/** @typedef {Schemas["QuestionDetail"]} QuestionDetail */
/** @typedef {{ run: string, iteration: string }} RunIteration */

/** @param {{ id: string }} props */
const CheckpointLink = ({ id }) => html`<a href=${checkpointUrl(id)}>${id}</a>`;

/** The page with the rollouts of a question in the training of a checkpoint. @param {Schemas["TrainedOnRow"]} row */
function rolloutsUrl({ question_id, checkpoint }) {
  const [run, role, iteration] = checkpoint.split("/");
  return withQuery(trainingUrl({ run, role, iteration }), new URLSearchParams({ question: question_id, sort: "step" }));
}

/** @param {RunIteration & { index: string, query: URLSearchParams }} props */
export function QuestionPage({ run, iteration, index, query }) {
  const parameters = { run, iteration, index };
  const { data, error } = useResponse("/runs/{run}/iterations/{iteration}/questions/{index}", parameters);
  const urlOfRun = runUrl(run);
  const iterationUrl = `${urlOfRun}/${iteration}`;
  const breadcrumbs = [
    ["Runs", "/"],
    [run, urlOfRun],
    [`iteration ${iteration}`, withQuery(iterationUrl, query)],
  ];
  return html`
    <${Heading} breadcrumbs=${breadcrumbs} title=${`Question ${index}`}
      aside=${html`<${NeighbourLinks} run=${run} iteration=${iteration} index=${Number(index)} query=${query} />`} />
    <${Loading} data=${data} error=${error}>${data && html`<${Question} question=${data} iterationUrl=${iterationUrl} />`}</${Loading}>
  `;
}

/**
 * Links to the previous and the next question in the list that the address filters. At an end of the list, the
 * shortcuts show a message.
 *
 * @param {RunIteration & { index: number, query: URLSearchParams }} props
 */
function NeighbourLinks({ run, iteration, index, query }) {
  const filters = filtersIn(query);
  const neighbours = useNeighbours({ run, iteration }, filters, index);
  const [message, setMessage] = useState("");
  const isFiltered = Object.keys(filters).some((name) => name !== "after");
  /** @param {import("../neighbours.js").ListedQuestion} question */
  const urlOf = (question) => {
    const newQuery = new URLSearchParams(query);
    newQuery.delete("after");
    if (question.cursor) newQuery.set("after", question.cursor);
    return withQuery(`${runUrl(run)}/${iteration}/${question.index}`, newQuery);
  };
  /** @param {"previous" | "next"} direction */
  const goTo = (direction) => () => {
    if (neighbours === null) return;
    const position = direction === "previous" ? "first" : "last";
    if (neighbours === "missing") setMessage("This question is not in the filtered list.");
    else if (neighbours[direction]) navigate(urlOf(neighbours[direction]));
    else setMessage(`This is the ${position} question${isFiltered ? " in the filtered list" : ""}.`);
  };
  useShortcuts({ k: goTo("previous"), j: goTo("next") });
  const { previous, next } = neighbours === null || neighbours === "missing" ? {} : neighbours;
  return html`<nav class="steps" aria-label="Questions">
    <span role="status">${message}</span>
    ${previous && html`<a href=${urlOf(previous)} rel="prev">← ${previous.index} <${KeyHint}>k</${KeyHint}></a>`}
    ${next && html`<a href=${urlOf(next)} rel="next">${next.index} → <${KeyHint}>j</${KeyHint}></a>`}
  </nav>`;
}

/**
 * The index in `classes` of the class that contains the pseudo-label: the one that is spelled like it, otherwise the
 * largest, which is the first.
 *
 * @param {QuestionDetail} question
 */
function labelClassOf({ classes, answer }) {
  return Math.max(
    classes.findIndex((answerClass) => answerClass.answer === answer),
    0,
  );
}

/** @param {{ question: QuestionDetail, iterationUrl: string }} props */
function Question({ question, iterationUrl }) {
  const { text, verdict, gate, oracles } = question;
  return html`
    <section class="panel wide asked">
      <h2 class="sr">The question</h2>
      ${text === null ? html`<p class="none">Malformed: no question could be read from the Challenger's output.</p>` : html`<p class="prose"><${Typeset} text=${text} /></p>`}
      <p class="meta">
        <${Verdict} verdict=${verdict} gate=${gate} />
        ${question.m !== null && html`<${PseudoLabel} question=${question} />`}
        ${oracles.map((label) => html` · <${OracleVerdict} key=${label.oracle} label=${label} />`)}
      </p>
    </section>
    <div class="panels">
      ${question.m !== null && html`<${Answers} question=${question} />`}
      <${Audits} question=${question} />
      <${Votes} question=${question} />
      <${Lineage} question=${question} iterationUrl=${iterationUrl} />
    </div>`;
}

/** @param {{ question: QuestionDetail }} props */
function PseudoLabel({ question: { answer, p_hat, votes, denominator, m, parsed } }) {
  const voters = denominator === "all" ? `${m} rollouts` : `${parsed} answers`;
  return html` · pseudo-label <b><${Answer} text=${answer} /></b> · p̂ ${number(p_hat)}: ${votes} of ${voters}`;
}

/** @param {{ question: QuestionDetail }} props */
function Answers({ question }) {
  const { classes, parsed, unknown } = question;
  const m = question.m ?? 0;
  const unanswered = m - (parsed ?? 0);
  const labelClass = labelClassOf(question);
  return html`<${Panel} title="Answers" about="The answers of the rollouts. Those that the grader finds equal are grouped.">
    ${classes.length === 0 && html`<${Empty}>No rollout gave an answer.</${Empty}>`}
    <ol class="groups">
      ${classes.map(({ answer, votes }, i) => html`<${AnswerBar} key=${answer} class=${i === labelClass ? "first" : ""} votes=${votes} m=${m}><${Answer} text=${answer} /></${AnswerBar}>`)}
      ${unanswered > 0 && html`<${AnswerBar} class="unanswered" votes=${unanswered} m=${m}>no answer</${AnswerBar}>`}
    </ol>
    ${unknown !== null && unknown > 0 && html`<p class="about">The grader could not decide ${unknown} comparisons of two answers. These do not put answers into one group.</p>`}
  </${Panel}>`;
}

/**
 * An answer with its share of the votes.
 *
 * @param {{ class: string, votes: number, m: number, children?: Children }} props
 */
function AnswerBar({ class: className, votes, m, children }) {
  return html`<li class=${className}>
    <span>${children}</span>
    <i class="track"><i style=${{ width: percent(votes / m) }}></i></i>
    <b>${votes}</b>
  </li>`;
}

/** @param {{ question: QuestionDetail }} props */
function Audits({ question: { oracles, annotations, given_answer } }) {
  return html`<${Panel} title="Audits" about="The verdicts of the oracles on the pseudo-label. Training never uses them.">
    ${oracles.length + annotations.length === 0 && html`<${Empty}>No oracle has graded this question.</${Empty}>`}
    <dl class="pairs">
      ${oracles.map(({ oracle, verdict, truth }) => html`<dt key=${oracle}>${humanise(oracle)}</dt><dd><span class=${`said s-${verdict}`}>${humanise(verdict)}</span>${truth !== null && html` · its answer <${Answer} text=${truth} />`}</dd>`)}
      ${annotations.map((annotation) => html`<${Annotation} key=${annotation.annotator} annotation=${annotation} />`)}
      ${given_answer !== null && html`<dt>given with the prompt</dt><dd><${Answer} text=${given_answer} /></dd>`}
    </dl>
  </${Panel}>`;
}

/** @param {{ annotation: Schemas["AnnotationRow"] }} props */
function Annotation({ annotation: { annotator, verdict, made_at, note } }) {
  return html`<dt><bdi>${annotator}</bdi>, by hand</dt>
    <dd><span class=${`said s-${verdict}`}>${verdict === "unknown" ? "skipped" : humanise(verdict)}</span>
      <small> ${dateTime(made_at)}${note && html` · <bdi>${note}</bdi>`}</small></dd>`;
}

/** @param {{ question: QuestionDetail }} props */
function Votes({ question }) {
  // A vote agrees with the pseudo-label if it is in the same class, even if it is spelled differently.
  const labelClass = labelClassOf(question);
  const votes = question.rollouts.map(
    (vote) =>
      html`<${Vote} key=${vote.sample_index} question=${question} vote=${vote} agrees=${vote.in_class === labelClass} />`,
  );
  return html`<${Panel} title="Votes" wide about="All rollouts of the Solver. Open a vote to read its text, if the run stores it.">
    ${votes.length === 0 ? html`<${Empty}>The Solver was not asked this question.</${Empty}>` : html`<div class="votes">${votes}</div>`}
  </${Panel}>`;
}

/** @param {{ question: QuestionDetail, vote: Schemas["Vote"], agrees: boolean }} props */
function Vote({ question: { run, iteration, index }, vote, agrees }) {
  const { sample_index, answer, tokens, finish_reason, mean_entropy, checkpoint, seed } = vote;
  const [open, setOpen] = useState(location.hash === `#vote-${sample_index}`);
  const path = "/runs/{run}/iterations/{iteration}/questions/{index}/votes/{sample_index}";
  const { data, error } = useResponse(open ? path : null, { run, iteration, index, sample_index });
  return html`<details class="vote" id=${`vote-${sample_index}`} open=${open} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>
      <span class="nr">${sample_index}</span>
      <span class=${agrees ? "with" : ""}><${Answer} text=${answer} /></span>
      <small>${number(tokens)} tokens${finish_reason === "length" ? ", cut off" : ""}${mean_entropy === null ? "" : ` · ${number(mean_entropy)} nats per token`}</small>
    </summary>
    <${ErrorMessage} error=${error} />
    ${data && (data.text === null ? html`<p class="none">The text of this vote is not stored. The setting <code>rollout_text</code> decides which texts a run stores.</p>` : html`<p class="prose"><${Typeset} text=${data.text} /></p>`)}
    <p class="meta">by <${CheckpointLink} id=${checkpoint} /> · seed ${seed}</p>
  </details>`;
}

/** @param {{ question: QuestionDetail, iterationUrl: string }} props */
function Lineage({ question, iterationUrl }) {
  const { checkpoint, seed, raw, cluster, rollouts, trained_on } = question;
  const voters = [...new Set(rollouts.map((vote) => vote.checkpoint))];
  return html`<${Panel} title="Lineage" wide>
    <ol class="lineage">
      <li><b>Written</b> ${checkpoint ? html`by <${CheckpointLink} id=${checkpoint} />, seed ${seed}` : "by no model: it is a given prompt"}
        <details open=${question.text === null}><summary>Original text</summary><pre tabindex="0">${raw}</pre></details></li>
      ${cluster && html`<li><b>Compared:</b> ${cluster.size > 1 ? html`one of <a href=${`${iterationUrl}?cluster=${cluster.number}`}>${number(cluster.size)} similar questions</a>` : "not similar to any other question of its iteration"}</li>`}
      ${voters.length > 0 && html`<li><b>Voted on</b> by ${voters.map((id) => html`<${CheckpointLink} key=${id} id=${id} /> `)}</li>`}
      <li><b>Trained on</b> ${trained_on.length === 0 ? "by no checkpoint" : trained_on.map((row) => html`<span key=${row.checkpoint}>by <${CheckpointLink} id=${row.checkpoint} />${` at ${row.steps.length === 1 ? "step" : "steps"} ${row.steps.join(", ")}`} (<a href=${rolloutsUrl(row)}>its rollouts</a>) </span>`)}</li>
    </ol>
  </${Panel}>`;
}
