// One evaluation: its figures, pass@k and maj@k, its manifest, and every question with the answers to it.
import { html, useState } from "/static/preact.js";
import { useResponse } from "../api.js";
import { CurveChart } from "../charts.js";
import { duration, humanise, number, percent } from "../format.js";
import { Answer, Typeset } from "../math.js";
import { DownloadButton, Empty, Heading, Legend, Loading, Panel, Share, Table, Tile } from "../parts.js";
import { benchmarkName, evaluationUrl } from "./evaluations.js";
import { Recheck } from "./recheck.js";

/** @typedef {Schemas["EvaluationFigures"]} EvaluationFigures */
/** @typedef {Schemas["Record"]} EvaluationRecord */
/** @typedef {Schemas["EvaluatedAnswer"]} EvaluatedAnswer */

const POLL_MS = 10_000;
const PAGE_SIZE = 20;
const COLOURS = ["var(--c-solver)", "var(--c-challenger)", "var(--muted)"];
const VERDICTS = { equal: "right", unequal: "wrong", unknown: "unknown" };

/** @param {{ id: string, query: URLSearchParams }} props */
export function EvaluationPage({ id, query }) {
  const { data, error } = useResponse("/evaluations/{evaluation}", { evaluation: id }, POLL_MS);
  const title = data ? benchmarkName(data.evaluation.benchmark) : "Evaluation";
  return html`<${Heading} breadcrumbs=${[["Evaluations", "/evaluations"]]} title=${title}>
      ${data && html`<bdi>${data.evaluation.model}</bdi> · ${data.evaluation.finished_at ? "finished" : "not finished"} · ${duration(data.evaluation.seconds)}`}
    </${Heading}>
    <${Loading} data=${data} error=${error}>
      ${data && html`<${Figures} figures=${data} />`}
      <${Records} id=${id} query=${query} />
    </${Loading}>`;
}

/** @param {{ figures: EvaluationFigures }} props */
function Figures({ figures }) {
  const {
    samples,
    pass_at_1,
    greedy,
    majority,
    vote_share,
    truncated,
    unparsed,
    mean_tokens,
    curve,
    by_majority_share,
    rechecks,
  } = figures;
  return html`<dl class="tiles">
      <${Tile} label="pass@1" estimate=${pass_at_1} note=${samples ? `${samples} samples of each question` : "greedy answers only"} />
      ${greedy && html`<${Tile} label="greedy" estimate=${greedy} />`}
      <${Tile} label="majority" estimate=${majority} note=${samples ? `of ${samples}` : null} />
      <${Tile} label="no answer" estimate=${unparsed} />
      <${Tile} label="cut off" estimate=${truncated} note=${`${number(mean_tokens)} tokens on average`} />
      ${vote_share && html`<${Tile} label="majority's share of votes" estimate=${vote_share} />`}
    </dl>
    <div class="panels">
      ${curve.length > 1 && html`<${Curves} curve=${curve} />`}
      ${by_majority_share.length > 0 && html`<${ByMajorityShare} points=${by_majority_share} />`}
      ${rechecks.map((recheck) => html`<${Recheck} key=${recheck.judge} recheck=${recheck} figures=${figures} />`)}
      <${Groups} title="By level" groups=${figures.by_level} />
      <${Groups} title="By subject" groups=${figures.by_subject} />
      <${Panel} title="What the answers depend on" about="The manifest, which is stored with the evaluation.">
        <pre class="scroll" tabindex="0" aria-label="Manifest">${JSON.stringify(figures.evaluation.manifest, null, 2)}</pre>
      </${Panel}>
    </div>`;
}

/** @param {{ curve: EvaluationFigures["curve"] }} props */
function Curves({ curve }) {
  const points = curve.flatMap(({ k, pass_at_k, maj_at_k }) => [
    { name: "pass@k", x: k, colour: COLOURS[0], ...pass_at_k },
    { name: "maj@k", x: k, colour: COLOURS[1], ...maj_at_k },
  ]);
  return html`<${Panel} title="pass@k and maj@k" about="The share of sets of k samples with a right answer, and with a right majority, over all sets. The band is the 95% interval over questions."
    table=${tableOf("k", points)}>
    <${Legend} items=${[["pass@k", COLOURS[0]], ["maj@k", COLOURS[1]]]} />
    <${CurveChart} points=${points} axis=${{ label: "k", isLog: true }} label="pass@k and maj@k" />
  </${Panel}>`;
}

/** SRT, Figure 9. @param {{ points: EvaluationFigures["by_majority_share"] }} props */
function ByMajorityShare({ points }) {
  const shares = points.flatMap(({ threshold, answer, majority, left }) => [
    ...(answer ? [{ name: "an answer right", x: threshold, colour: COLOURS[0], ...answer }] : []),
    ...(majority ? [{ name: "the majority right", x: threshold, colour: COLOURS[1], ...majority }] : []),
    { name: "questions left", x: threshold, colour: COLOURS[2], ...left },
  ]);
  return html`<${Panel} title="By the majority's share" about="Only questions whose majority has at least this share of the answers. Questions left are those whose majority has this share of all replies."
    table=${tableOf("share", shares)}>
    <${Legend} items=${[["an answer right", COLOURS[0]], ["the majority right", COLOURS[1]], ["questions left", COLOURS[2]]]} />
    <${CurveChart} points=${shares} axis=${{ label: "the majority's share" }} label="Accuracy by the majority's share" />
  </${Panel}>`;
}

/** @param {string} axis @param {(Schemas["Estimate"] & { name: string, x: number })[]} points */
const tableOf = (axis, points) => ({
  head: ["figure", axis, "share", "95%", "n"],
  rows: points.map(({ name, x, value, lo, hi, n }) => [name, x, percent(value), `${percent(lo)} to ${percent(hi)}`, n]),
});

/** @param {{ title: string, groups: Record<string, Schemas["Estimate"]> }} props */
function Groups({ title, groups }) {
  const names = Object.keys(groups);
  if (names.length === 0) return null;
  return html`<${Panel} title=${`pass@1, ${title.toLowerCase()}`}>
    <dl class="pairs">${names.map((name) => html`<dt key=${name}>${name}</dt><dd><${Share} estimate=${groups[name]} /></dd>`)}</dl>
  </${Panel}>`;
}

/** @param {{ id: string, query: URLSearchParams }} props */
function Records({ id, query }) {
  const after = query.get("after");
  const { data, error } = useResponse("/evaluations/{evaluation}/records", { evaluation: id, limit: PAGE_SIZE, after });
  return html`<section class="panel wide records"><h2>Questions</h2>
    <${Loading} data=${data} error=${error}>
      ${data?.items.length === 0 && html`<${Empty}>No questions.</${Empty}>`}
      ${data?.items.map((record) => html`<${Question} key=${record.result.item_id} id=${id} record=${record} />`)}
      <nav class="pager" aria-label="Pages of questions">
        ${after && html`<a href=${evaluationUrl(id)}>First page</a>`}
        ${data?.next && html`<a href=${`${evaluationUrl(id)}?after=${encodeURIComponent(data.next)}`} rel="next">Next page</a>`}
      </nav>
    </${Loading}>
    <${Exports} id=${id} />
  </section>`;
}

/** @param {{ id: string }} props */
function Exports({ id }) {
  const formats = [
    ["jsonl", "JSONL"],
    ["csv", "CSV"],
    ["parquet", "Parquet"],
  ];
  return html`<div class="exports">
    <span>Download all questions with their answers:</span>
    ${formats.map(([kind, label]) => html`<${DownloadButton} key=${kind} path="/evaluations/{evaluation}/exports/{kind}" parameters=${{ evaluation: id, kind }}>${label}</${DownloadButton}>`)}
  </div>`;
}

/** @param {{ id: string, record: EvaluationRecord }} props */
function Question({ id, record: { question, result, answers, judged } }) {
  const [isOpen, setOpen] = useState(false);
  const { correct, samples, greedy_correct } = result;
  const greedy = greedy_correct === null ? "" : `, greedy ${greedy_correct ? "right" : "wrong"}`;
  const outcome = `${correct} of ${samples} right${greedy}`;
  return html`<details class="record" onToggle=${(/** @type {EventOn<HTMLDetailsElement>} */ event) => setOpen(event.target.open)}>
    <summary><b>${result.item_id}</b> <span class="meta">${outcome}</span></summary>
    ${
      question &&
      html`<p class="prose"><${Typeset} text=${question.problem} /></p>
      <p class="meta">True answer: <b><${Answer} text=${question.answer} /></b></p>`
    }
    <${Answers} answers=${answers} judged=${judged} />
    ${isOpen && html`<${Replies} id=${id} item=${result.item_id} />`}
  </details>`;
}

/** @param {{ answers: EvaluatedAnswer[], judged: Schemas["JudgedAnswer"][] }} props */
function Answers({ answers, judged }) {
  const judges = [...new Set(judged.map(({ judge }) => judge))].sort();
  const verdicts = new Map(judged.map(({ judge, sample_index, verdict }) => [`${judge} ${sample_index}`, verdict]));
  const head = ["sample", "answer", "verdict", ...judges.map(humanise), "tokens", "end"];
  return html`<${Table} label="Answers" head=${head}>
    <tbody>${answers.map(
      ({ sample_index, answer, verdict, tokens, finish_reason }) => html`<tr key=${sample_index}>
        <td>${sample_index < 0 ? "greedy" : sample_index}</td>
        <td>${answer === null ? html`<span class="none">none</span>` : html`<${Answer} text=${answer} />`}</td>
        <td>${verdict ? VERDICTS[verdict] : "no answer"}</td>
        ${judges.map((judge) => html`<td key=${judge}>${verdicts.get(`${judge} ${sample_index}`) ?? "–"}</td>`)}
        <td>${number(tokens)}</td>
        <td>${finish_reason === "length" ? "cut off" : "stop"}</td>
      </tr>`,
    )}</tbody>
  </${Table}>`;
}

/** The whole replies, which are requested when the question is opened. @param {{ id: string, item: string }} props */
function Replies({ id, item }) {
  const { data, error } = useResponse("/evaluations/{evaluation}/record", { evaluation: id, item });
  if (data && data.texts === null) return html`<p class="meta">The whole replies are not kept.</p>`;
  return html`<${Loading} data=${data} error=${error}>
    ${data?.answers.map(
      (
        { sample_index },
        index,
      ) => html`<details key=${sample_index}><summary>${sample_index < 0 ? "greedy reply" : `reply ${sample_index}`}</summary>
        <pre class="scroll" tabindex="0" aria-label="Reply">${data.texts?.[index]}</pre></details>`,
    )}
  </${Loading}>`;
}
