// One iteration's questions: how sure the Solver was of them, what became of them, and each of them.
import { html, useEffect, useLayoutEffect, useRef, useState } from "/static/preact.js";
import { useAnswer, useAnswers } from "../api.js";
import { Histogram } from "../charts.js";
import { number, words } from "../format.js";
import { Download, Empty, Heading, isLive, Legend, Loading, Panel, Problem, Said, SAID, Tile, Verdict, VERDICTS } from "../parts.js";
import { Answer, Typeset } from "../math.js";
import { PAGE } from "../neighbours.js";
import { go } from "../router.js";
import { courses } from "../series.js";
import { frameAt } from "./audits.js";

const EVERY = 6_000;
const SORTS = [["index", "as they were asked"], ["p_hat", "p̂, lowest first"], ["-p_hat", "p̂, highest first"], ["-index", "last asked first"]];
const FILTERS = ["verdict", "p_hat_min", "p_hat_max", "text", "oracle", "oracle_verdict", "cluster", "sort", "after"];

/** The filters of an address, as the API takes them. */
export function wantedOf(query) {
  const wanted = Object.fromEntries(FILTERS.map((name) => [name, query.get(name)]).filter(([, value]) => value));
  if (query.has("verdict")) wanted.verdict = query.getAll("verdict");
  return wanted;
}

function moved(place, query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries({ after: null, ...changes })) {
    next.delete(name);
    for (const one of [value].flat()) if (one !== null && one !== "") next.append(name, one);
  }
  return `${place}${String(next) && `?${next}`}`;
}

export function IterationPage({ run, t, query }) {
  const api = `/runs/${encodeURIComponent(run)}`;
  const [live, setLive] = useState(true);
  const { data, error } = useAnswers([[api], [`${api}/iterations/${t}/statistics`], [`${api}/series`], [`${api}/iterations/${t}/clusters`, { limit: 8 }]], live ? EVERY : 0);
  if (data && isLive(data[0]) !== live) setLive(isLive(data[0]));
  if (data === null && error) return html`<${Heading} trail=${[["Runs", "/"], [run, api]]} title=${`${run}, iteration ${t}`} /><${Problem} error=${error} />`;
  return html`<${Loading} data=${data} error=${error}>${data && html`<${Iteration} t=${Number(t)} query=${query} data=${data} />`}</${Loading}>`;
}

function Iteration({ t, query, data }) {
  const [run, statistics, series, clusters] = data;
  const place = `/runs/${encodeURIComponent(run.name)}/${t}`;
  const last = run.iterations;
  return html`
    <${Heading} trail=${[["Runs", "/"], [run.name, `/runs/${encodeURIComponent(run.name)}`]]} title=${`${run.name}, iteration ${t}`}
      aside=${html`<nav class="steps" aria-label="Iterations">
        ${t > 0 ? html`<a href=${`/runs/${encodeURIComponent(run.name)}/${t - 1}`} rel="prev">← ${t - 1}</a>` : null}
        ${t < last ? html`<a href=${`/runs/${encodeURIComponent(run.name)}/${t + 1}`} rel="next">${t + 1} →</a>` : null}
      </nav>`}>
      <a href=${`${place}/label`}>Label a sample by hand</a>
    </${Heading}>
    <${Tiles} run=${run.name} t=${t} statistics=${statistics} series=${series} />
    <div class="panels">
      <${Shares} run=${run} place=${place} query=${query} statistics=${statistics} />
      <${Alike} place=${place} query=${query} clusters=${clusters} />
    </div>
    <${Questions} run=${run} t=${t} place=${place} query=${query} statistics=${statistics} />
  `;
}

function Tiles({ run, t, statistics, series }) {
  const { data: audits } = useAnswer(`/runs/${encodeURIComponent(run)}/audits`);
  const rest = (point) => html`by ${words(point.oracle)}<br />${frameAt(audits, point)}`;
  const at = (name, over) => courses(series, name).filter((course) => over === undefined || course.over === over).map((course) => course.points.find((point) => point.iteration === t)).find(Boolean);
  const accuracy = at("label_accuracy", "kept");
  const all = at("label_accuracy", "all");
  return html`<dl class="tiles">
    <${Tile} label="Kept" estimate=${statistics.kept} note="of all questions" />
    <${Tile} label="Label accuracy, kept" estimate=${accuracy} note=${accuracy && rest(accuracy)} />
    <${Tile} label="Label accuracy, all" estimate=${all} note=${all && rest(all)} />
    <${Tile} label="Mean p̂" estimate=${at("p_hat", "all") ?? at("p_hat")}>${at("p_hat") ? null : html`<b>${number(statistics.mean_p_hat)}</b>`}</${Tile}>
  </dl>`;
}

function Shares({ run, place, query, statistics }) {
  const dataset = run.config.dataset;
  const band = dataset.filtered ? (dataset.band ?? [0.5 - dataset.delta, 0.5 + dataset.delta]) : null;
  const near = (value) => [Math.max(0, value - 0.001).toFixed(4), Math.min(1, value + 0.001).toFixed(4)];
  const hrefOf = (bin) => {
    const [p_hat_min, p_hat_max] = near(bin.p_hat);
    return moved(place, query, { verdict: bin.verdict, p_hat_min, p_hat_max });
  };
  const shown = VERDICTS.filter((verdict) => statistics.histogram.some((bin) => bin.verdict === verdict));
  const rows = statistics.histogram.map((bin) => [number(bin.p_hat), words(bin.verdict), number(bin.questions)]);
  return html`<${Panel} title="How sure the Solver was" table=${{ head: ["p̂", "verdict", "questions"], rows }}
    about=${band ? `Questions by p̂; those in the band, ${number(band[0])} to ${number(band[1])}, are kept. A bar shows its questions below.` : "Questions by p̂. A bar shows its questions below."}>
    ${statistics.histogram.length
      ? html`<${Histogram} bins=${statistics.histogram} band=${band} m=${dataset.votes} hrefOf=${hrefOf} label="Questions by p-hat and verdict" />
          <${Legend} items=${shown.map((verdict) => [words(verdict), `var(--v-${verdict})`])} />`
      : html`<${Empty}>No votes yet.</${Empty}>`}
  </${Panel}>`;
}

function Alike({ place, query, clusters }) {
  const repeated = clusters.filter((cluster) => cluster.size > 1);
  return html`<${Panel} title="Questions that are alike" about="The largest clusters by BLEU, each by its first question.">
    ${repeated.length
      ? html`<ol class="clusters">
          ${repeated.map((cluster) => html`<li key=${cluster.number}>
            <a href=${moved(place, query, { cluster: String(cluster.number) })}><b>${number(cluster.size)}</b> like</a>
            <${Typeset} text=${cluster.example.slice(0, 160)} />
          </li>`)}
        </ol>`
      : html`<${Empty}>${clusters.length ? "No two are alike." : "They were not compared: given prompts, or too many."}</${Empty}>`}
  </${Panel}>`;
}

function Questions({ run, t, place, query, statistics }) {
  const wanted = wantedOf(query);
  const heading = useRef();
  const asked = useRef(String(query));
  useEffect(() => {
    // A link that is gone with the list that it was in leaves the keyboard nowhere.
    if (asked.current !== String(query) && document.activeElement === document.body) heading.current.focus();
    asked.current = String(query);
  }, [String(query)]);
  const { data, error } = useAnswer(`/runs/${encodeURIComponent(run.name)}/iterations/${t}/questions`, { limit: PAGE, ...wanted }, isLive(run) ? EVERY : 0);
  return html`<section class="panel wide questions" id="questions">
    <h2 ref=${heading} tabindex="-1">Questions</h2>
    <${Filters} place=${place} query=${query} wanted=${wanted} statistics=${statistics} />
    <${Loading} data=${data} error=${error}>
      ${data && (data.items.length
        ? html`<${Table} items=${data.items} place=${place} query=${query} />`
        : html`<${Empty}>No question is like that.</${Empty}>`)}
      <nav class="pager" aria-label="Pages of questions">
        ${wanted.after && html`<a href=${moved(place, query, {})}>First page</a>`}
        ${data?.next && html`<a href=${moved(place, query, { after: data.next })} rel="next">Next page</a>`}
      </nav>
    </${Loading}>
    <div class="exports">
      <span>The data set:</span>
      ${["jsonl", "csv", "parquet", "huggingface"].map((kind) => html`<${Download} key=${kind} path=${`/runs/${encodeURIComponent(run.name)}/iterations/${t}/exports/${kind}`}
        query=${{}} name=${`${run.name}-${t}.${kind === "huggingface" ? "zip" : kind}`}>${kind === "huggingface" ? "Hugging Face" : kind.toUpperCase()}</${Download}>`)}
    </div>
  </section>`;
}

function Filters({ place, query, wanted, statistics }) {
  const chosen = wanted.verdict ?? [];
  const set = (changes) => go(moved(place, query, changes), { replace: true });
  const without = (verdict) => (chosen.includes(verdict) ? chosen.filter((one) => one !== verdict) : [...chosen, verdict]);
  const some = FILTERS.some((name) => name !== "sort" && wanted[name]);
  return html`<form class="filters" role="search" aria-label="Questions" onSubmit=${(event) => (event.preventDefault(), set({ text: event.target.elements.text.value }))}>
    <fieldset class="chips">
      <legend class="sr">Verdict</legend>
      ${VERDICTS.filter((verdict) => statistics.verdicts[verdict]).map((verdict) => html`<button key=${verdict} type="button" aria-pressed=${chosen.includes(verdict)} onClick=${() => set({ verdict: without(verdict) })}>
        <i class="swatch v-${verdict}"></i>${words(verdict)} <small>${number(statistics.verdicts[verdict])}</small>
      </button>`)}
    </fieldset>
    <label>Oracle says <select value=${wanted.oracle_verdict ?? ""} onChange=${(event) => set({ oracle_verdict: event.target.value, oracle: event.target.value ? (wanted.oracle ?? null) : null })}>
      <option value="">anything</option>${SAID.map((said) => html`<option key=${said} value=${said}>${words(said)}</option>`)}
    </select></label>
    <label>p̂ from <${Field} type="number" min="0" max="1" step="0.05" value=${wanted.p_hat_min} take=${(p_hat_min) => set({ p_hat_min })} /></label>
    <label>to <${Field} type="number" min="0" max="1" step="0.05" value=${wanted.p_hat_max} take=${(p_hat_max) => set({ p_hat_max })} /></label>
    <label>Sort <select value=${wanted.sort ?? "index"} onChange=${(event) => set({ sort: event.target.value === "index" ? null : event.target.value })}>
      ${SORTS.map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
    </select></label>
    <span class="search">
      <label>Text <${Field} type="search" name="text" maxlength="200" value=${wanted.text} take=${(text) => set({ text })} /></label>
      <button class="quiet">Search</button>
    </span>
    ${wanted.cluster && html`<a class="chip" href=${moved(place, query, { cluster: null })}>cluster ${wanted.cluster} ×</a>`}
    ${wanted.oracle && html`<a class="chip" href=${moved(place, query, { oracle: null })}>by ${words(wanted.oracle)} ×</a>`}
    ${some && html`<a href=${place}>Show all</a>`}
  </form>`;
}

/** An input whose value is taken when a person is done with it. What is half typed outlives a redraw of a live page. */
function Field({ value = "", take, ...rest }) {
  const [typed, setTyped] = useState(value);
  useLayoutEffect(() => setTyped(value), [value]);
  return html`<input ...${rest} value=${typed} onInput=${(event) => setTyped(event.target.value)} onChange=${(event) => take(event.target.value)} />`;
}

function Table({ items, place, query }) {
  const back = String(query);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Questions">
    <table class="questions">
      <thead><tr><th scope="col">#</th><th scope="col">Question</th><th scope="col">Pseudo-label</th><th scope="col">p̂</th><th scope="col">Verdict</th><th scope="col">Oracle</th></tr></thead>
      <tbody>
        ${items.map((item) => html`<tr key=${item.id}>
          <td><a href=${`${place}/${item.index}${back && `?${back}`}`}>${item.index}</a></td>
          <td class="text">${item.text === null ? html`<span class="none">malformed</span>` : html`<a class="plain" href=${`${place}/${item.index}${back && `?${back}`}`}><${Typeset} text=${item.text.length > 280 ? `${item.text.slice(0, 280)}…` : item.text} /></a>`}</td>
          <td>${item.m === null ? "" : html`<${Answer} text=${item.answer} />`}</td>
          <td class="p-hat">${item.p_hat === null ? "" : html`<meter min="0" max="1" value=${item.p_hat} aria-label="p-hat"></meter> ${item.votes}/${item.denominator === "all" ? item.m : item.parsed}`}</td>
          <td><${Verdict} verdict=${item.verdict} /></td>
          <td>${item.oracles.map((said) => html`<div key=${said.oracle}><${Said} said=${said} /></div>`)}</td>
        </tr>`)}
      </tbody>
    </table>
  </div>`;
}
