// The page of one iteration: the distribution of p_hat, clusters of similar questions, and the list of all questions.
import { html, useState } from "/static/preact.js";
import { unlessReport, useResponse, useResponses } from "../api.js";
import { Histogram } from "../charts.js";
import { humanise, number } from "../format.js";
import { Typeset } from "../math.js";
import { configOf, Empty, ErrorMessage, Heading, isLive, Legend, Loading, Panel, Tile, VERDICTS } from "../parts.js";
import { checkpointUrl, runUrl } from "../router.js";
import { seriesNamed } from "../series.js";
import { basisOfPoint } from "./audits.js";
import { filteredUrl, Questions, scrolledToQuestions } from "./questions.js";

/** @typedef {import("../series.js").SeriesPoint} SeriesPoint */

const POLL_MS = 6_000;

/** @typedef {{ run: string, iteration: string, query: URLSearchParams }} PageProps */

/** @param {PageProps} props */
export const IterationPage = (props) =>
  Number(props.iteration) === 0 ? html`<${FirstPage} ...${props} />` : html`<${QuestionsPage} ...${props} />`;

/** Iteration 0, which only has questions where a run trains on given prompts. @param {PageProps} props */
function FirstPage({ run: name, iteration, query }) {
  const { data: run, error } = useResponse("/runs/{run}", { run: name });
  if (run && configOf(run).kind === "self_train") {
    return html`<${QuestionsPage} run=${name} iteration=${iteration} query=${query} />`;
  }
  const url = runUrl(name);
  const next = html`<nav class="steps" aria-label="Iterations"><a href=${`${url}/1`} rel="next">1 →</a></nav>`;
  return html`<${Heading} breadcrumbs=${[["Runs", "/"], [name, url]]} title=${`${name}, iteration 0`} aside=${next} />
    <${Loading} data=${run} error=${error}>
      <p>Iteration 0 is the base model before any training. It has no questions, only <a href=${checkpointUrl(`${name}/base/0`)}>its evaluation</a>.</p>
    </${Loading}>`;
}

/** @param {PageProps} props */
function QuestionsPage({ run, iteration, query }) {
  const [live, setLive] = useState(true);
  const { data, error } = useResponses(
    [
      ["/runs/{run}", { run }],
      ["/runs/{run}/iterations/{iteration}/statistics", { run, iteration }],
      ["/runs/{run}/series", { run }],
      ["/runs/{run}/iterations/{iteration}/clusters", { run, iteration, limit: 8 }],
    ],
    live ? POLL_MS : 0,
  );
  if (data && isLive(data[0]) !== live) setLive(isLive(data[0]));
  if (data === null && error) {
    return html`<${Heading} breadcrumbs=${[["Runs", "/"], [run, runUrl(run)]]} title=${`${run}, iteration ${iteration}`} /><${ErrorMessage} error=${error} />`;
  }
  return html`<${Loading} data=${data} error=${error}>${data && html`<${Iteration} t=${Number(iteration)} query=${query} data=${data} />`}</${Loading}>`;
}

/**
 * @typedef {[
 *   run: Schemas["RunWithConfig"],
 *   statistics: Schemas["Statistics"],
 *   seriesPoints: SeriesPoint[],
 *   clusters: Schemas["ClusterSummary"][],
 * ]} IterationData
 * @param {{ t: number, query: URLSearchParams, data: IterationData }} props
 */
function Iteration({ t, query, data }) {
  const [run, statistics, seriesPoints, clusters] = data;
  const urlOfRun = runUrl(run.name);
  const url = `${urlOfRun}/${t}`;
  const hasQuestions = Object.keys(statistics.verdicts).length > 0;
  const heading = html`<${Heading} breadcrumbs=${[["Runs", "/"], [run.name, urlOfRun]]} title=${`${run.name}, iteration ${t}`}
      aside=${html`<nav class="steps" aria-label="Iterations">
        ${t > 0 ? html`<a href=${`${urlOfRun}/${t - 1}`} rel="prev">← ${t - 1}</a>` : null}
        ${t < (run.iterations ?? 0) ? html`<a href=${`${urlOfRun}/${t + 1}`} rel="next">${t + 1} →</a>` : null}
      </nav>`}>
      ${hasQuestions && html`<a href=${`${url}/label`}>Label a sample by hand</a>`}
    </${Heading}>`;
  if (configOf(run).kind === "self_train" && t > 0) {
    return html`${heading}<p>This iteration has no questions: the run's prompts are in <a href=${`${urlOfRun}/0`}>iteration 0</a>.</p>`;
  }
  return html`
    ${heading}
    <${Tiles} run=${run.name} t=${t} statistics=${statistics} seriesPoints=${seriesPoints} />
    <div class="panels">
      <${Distribution} run=${run} url=${url} query=${query} statistics=${statistics} />
      <${SimilarQuestions} run=${run} url=${url} query=${query} statistics=${statistics} clusters=${clusters} />
    </div>
    <${Questions} run=${run} t=${t} url=${url} query=${query} statistics=${statistics} />
  `;
}

/** @param {{ run: string, t: number, statistics: Schemas["Statistics"], seriesPoints: SeriesPoint[] }} props */
function Tiles({ run, t, statistics, seriesPoints }) {
  const { data: audits } = useResponse("/runs/{run}/audits", { run });
  /** @param {SeriesPoint | undefined} point */
  const basis = (point) => point && html`by ${humanise(point.oracle)}<br />${basisOfPoint(audits, point)}`;
  /** @param {string} name @param {string} [over] */
  const pointNamed = (name, over) =>
    seriesNamed(seriesPoints, name)
      .filter((series) => over === undefined || series.over === over)
      .flatMap((series) => series.points)
      .find((point) => point.iteration === t);
  const kept = pointNamed("label_accuracy", "kept");
  const all = pointNamed("label_accuracy", "all");
  const pHat = pointNamed("p_hat", "all") ?? pointNamed("p_hat");
  return html`<dl class="tiles">
    <${Tile} label="Kept" estimate=${statistics.kept} note="of all questions" />
    <${Tile} label="Label accuracy (kept)" estimate=${kept} note=${basis(kept)} />
    <${Tile} label="Label accuracy (all)" estimate=${all} note=${basis(all)} />
    <${Tile} label="Mean p̂" estimate=${pHat}>${pHat ? null : html`<b>${number(statistics.mean_p_hat)}</b>`}</${Tile}>
  </dl>`;
}

/**
 * @param {{ run: Schemas["RunWithConfig"], url: string, query: URLSearchParams, statistics: Schemas["Statistics"] }} props
 */
export function Distribution({ run, url, query, statistics }) {
  const { votes, filtered, band: configuredBand, delta = 0 } = configOf(run).dataset;
  const band = filtered ? (configuredBand ?? [0.5 - delta, 0.5 + delta]) : null;
  /** @param {Schemas["Bin"]} bin */
  const hrefOf = ({ verdict, p_hat }) => {
    const p_hat_min = Math.max(0, p_hat - 0.001).toFixed(4);
    const p_hat_max = Math.min(1, p_hat + 0.001).toFixed(4);
    return scrolledToQuestions(filteredUrl(url, query, { verdict, p_hat_min, p_hat_max }));
  };
  const verdicts = VERDICTS.filter((verdict) => statistics.histogram.some((bin) => bin.verdict === verdict));
  const rows = statistics.histogram.map((bin) => [number(bin.p_hat), humanise(bin.verdict), number(bin.questions)]);
  const keptText = band ? `Questions in the band from ${number(band[0])} to ${number(band[1])} are kept. ` : "";
  const refused = Object.entries(statistics.gates).map(([gate, { refused }]) => `${humanise(gate)} ${number(refused)}`);
  const refusedText = refused.length ? `Of these, gates refused: ${refused.join(", ")}. ` : "";
  const about = `Questions by p̂, which shows how far the Solver's votes agree. ${keptText}${refusedText}${unlessReport("Click a bar to list its questions below.")}`;
  const legend = verdicts.map((verdict) => [humanise(verdict), `var(--v-${verdict})`]);
  const chart = html`<${Histogram} bins=${statistics.histogram} band=${band} m=${votes} hrefOf=${hrefOf} label="Questions by p-hat and verdict" />
    <${Legend} items=${legend} />`;
  return html`<${Panel} title="How certain the Solver was" table=${{ head: ["p̂", "verdict", "questions"], rows }} about=${about}>
    ${statistics.histogram.length ? chart : html`<${Empty}>No votes yet.</${Empty}>`}
  </${Panel}>`;
}

/**
 * Why there is no cluster of similar questions to show.
 *
 * @param {Schemas["RunWithConfig"]} run
 * @param {Schemas["Statistics"]} statistics
 * @param {Schemas["ClusterSummary"][]} clusters
 */
function whyNoneIsSimilar(run, statistics, clusters) {
  if (clusters.length > 0) return "No two questions are similar.";
  if (configOf(run).kind === "self_train") return "The questions were not compared, because they are given prompts.";
  if (Object.keys(statistics.verdicts).length === 0) return "No question has been labelled yet.";
  return "The questions were not compared, because there are too many of them.";
}

/**
 * @param {{
 *   run: Schemas["RunWithConfig"],
 *   url: string,
 *   query: URLSearchParams,
 *   statistics: Schemas["Statistics"],
 *   clusters: Schemas["ClusterSummary"][],
 * }} props
 */
function SimilarQuestions({ run, url, query, statistics, clusters }) {
  const largerClusters = clusters.filter((cluster) => cluster.size > 1);
  const items = largerClusters.map(
    ({ number: cluster, size, example }) => html`<li key=${cluster}>
      <a href=${scrolledToQuestions(filteredUrl(url, query, { cluster: String(cluster) }))}><b>${number(size)}</b> similar</a>
      <${Typeset} text=${example.slice(0, 160)} />
    </li>`,
  );
  return html`<${Panel} title="Similar questions" about="The largest clusters by BLEU. Each is shown with its first question.">
    ${items.length ? html`<ol class="clusters">${items}</ol>` : html`<${Empty}>${whyNoneIsSimilar(run, statistics, clusters)}</${Empty}>`}
  </${Panel}>`;
}
