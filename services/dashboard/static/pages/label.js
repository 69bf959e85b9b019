// Labelling by hand, one question after the other, by keyboard. It is blind: the page shows no votes, no p_hat and no
// other verdicts.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { get, post, toError, useResponse } from "../api.js";
import { number } from "../format.js";
import { Answer, Typeset } from "../math.js";
import { ActionButton, Empty, ErrorMessage, Heading, Loading, Panel } from "../parts.js";
import { runUrl } from "../router.js";
import { KeyHint, useShortcuts } from "../shortcuts.js";
import { browserStorage, USER_NAME_KEY } from "../stored.js";

/** @typedef {Schemas["Labelling"]} LabellingState */
/** @typedef {Schemas["OracleLabel"]["verdict"]} Verdict */
/** @typedef {{ run: string, iteration: string }} RunIteration */

const UNDO_MS = 1_500; // how long a verdict can be undone; after that it is sent, and cannot be taken back
/** @type {[verdict: Verdict, key: string, name: string, description: string][]} */
const CHOICES = [
  ["right", "r", "Right", "The pseudo-label is the answer to the question."],
  ["wrong", "w", "Wrong", "The question has a different answer."],
  ["ill_posed", "i", "Ill-posed", "The question does not have exactly one answer."],
  ["unknown", "s", "Skip", "I cannot tell."],
];

/** @param {{ run?: string, iteration?: string }} props which are missing at the address /label */
export function LabelPage({ run, iteration }) {
  const [annotator, setAnnotator] = useState(browserStorage.get(USER_NAME_KEY) ?? "");
  if (!run || !iteration) {
    return html`<${Heading} title="Label by hand">Open an iteration of a run and click “Label a sample by hand”. <a href="/">All runs</a></${Heading}>`;
  }
  /** @param {string} name */
  function onName(name) {
    browserStorage.set(USER_NAME_KEY, name);
    setAnnotator(name);
  }
  const url = runUrl(run);
  return html`
    <${Heading} breadcrumbs=${[["Runs", "/"], [run, url], [`iteration ${iteration}`, `${url}/${iteration}`]]} title="Label by hand">
      Is the pseudo-label the right answer to the question? A verdict is settled when two people agree.
    </${Heading}>
    ${annotator ? html`<${Labelling} run=${run} iteration=${iteration} annotator=${annotator} changeName=${() => setAnnotator("")} />` : html`<${NameForm} onName=${onName} />`}
  `;
}

/** @param {{ onName: (name: string) => void }} props */
function NameForm({ onName }) {
  const [name, setName] = useState("");
  /** @param {Event} event */
  function onSubmit(event) {
    event.preventDefault();
    onName(name.trim());
  }
  return html`<form class="card form" onSubmit=${onSubmit}>
    <label>Your name <input value=${name} onInput=${(event) => setName(event.target.value)} required maxlength="100" /></label>
    <p class="about">It is stored with each of your verdicts.</p>
    <button>Start</button>
  </form>`;
}

/** @param {RunIteration & { annotator: string, changeName: () => void }} props */
function Labelling({ run, iteration, annotator, changeName }) {
  const next = useResponse("/runs/{run}/iterations/{iteration}/labelling/next", { run, iteration, annotator });
  // The response to the last verdict, which contains the next question.
  const [postResponse, setPostResponse] = useState(/** @type {LabellingState | null} */ (null));
  const [postError, setPostError] = useState(/** @type {Error | null} */ (null));
  const [note, setNote] = useState("");
  const [sentCount, setSentCount] = useState(0);
  // The verdict that is about to be sent, and the question that it is for.
  const [choice, setChoice] = useState(/** @type {{ verdict: Verdict, index: number } | null} */ (null));
  // The question of the last verdict. While that is being sent, the question takes no other verdict.
  const sentIndex = useRef(/** @type {number | null} */ (null));
  const data = postResponse ?? next.data;
  const question = data?.question ?? null;
  const chosen = choice !== null && choice.index === question?.index ? choice.verdict : null;

  const isOpen = () => question !== null && question.index !== sentIndex.current;

  async function sendVerdict() {
    if (question === null || chosen === null || !isOpen()) return;
    sentIndex.current = question.index;
    setChoice(null);
    try {
      const path = "/runs/{run}/iterations/{iteration}/labelling/{index}";
      const parameters = { run, iteration, index: question.index };
      const body = { annotator, verdict: chosen, note };
      setPostResponse(await post(path, parameters, body, { keepalive: true }));
      setPostError(null);
      setNote("");
      setSentCount((count) => count + 1);
    } catch (error) {
      sentIndex.current = null;
      setPostError(toError(error));
      await reload();
    }
  }

  /** Asks for the next question. The page shows the last one until the answer is there. */
  async function reload() {
    try {
      const path = "/runs/{run}/iterations/{iteration}/labelling/next";
      setPostResponse(await get(path, { run, iteration, annotator }));
    } catch (error) {
      setPostError(toError(error));
    }
  }

  /**
   * Chooses a verdict, which is sent after a moment. Choosing the same one again sends it at once.
   *
   * @param {Verdict} verdict
   */
  function choose(verdict) {
    if (question === null || !isOpen()) return;
    if (verdict === chosen) sendVerdict();
    else setChoice({ verdict, index: question.index });
  }

  const undo = () => setChoice(null);
  useDelayed(sendVerdict, chosen === null ? null : `${question?.index} ${chosen} ${note}`);
  useShortcuts({
    ...Object.fromEntries(CHOICES.map(([verdict, key]) => [key, () => choose(verdict)])),
    ...(chosen !== null && { u: undo, enter: sendVerdict }),
  });

  if (data === null) return html`<${Loading} data=${data} error=${next.error} />`;
  const form = html`<${VerdictForm} question=${question} chosen=${chosen} choose=${choose} undo=${undo} note=${note} setNote=${setNote} />`;
  const end = html`<${NothingToLabel} run=${run} iteration=${iteration} progress=${data.progress} reload=${reload} />`;
  return html`<${Loading} data=${data} error=${next.error}>
    <${Progress} progress=${data.progress} sentCount=${sentCount} annotator=${data.annotator} changeName=${changeName} />
    <${ErrorMessage} error=${postError} />
    ${question ? form : end}
  </${Loading}>`;
}

/**
 * @param {{
 *   question: Schemas["ToLabel"],
 *   chosen: Verdict | null,
 *   choose: (verdict: Verdict) => void,
 *   undo: () => void,
 *   note: string,
 *   setNote: (note: string) => void,
 * }} props
 */
function VerdictForm({ question, chosen, choose, undo, note, setNote }) {
  const { index, text, label, answers } = question;
  const buttons = CHOICES.map(
    ([verdict, key, name, description]) =>
      html`<button key=${verdict} type="button" class=${`s-${verdict}`} aria-pressed=${chosen === verdict} onClick=${() => choose(verdict)} title=${description}><${KeyHint}>${key}</${KeyHint}>${name}</button>`,
  );
  return html`<section class="panel labelling" aria-live="polite">
    <h2 class="sr">Question ${index}</h2>
    <p class="prose"><${Typeset} text=${text} /></p>
    <p class="claimed"><span>Pseudo-label</span> <${Answer} text=${label} /></p>
    ${answers.length > 1 && html`<p class="about">All answers of the Solver: ${answers.map((answer, i) => html`${i ? ", " : ""}<${Answer} key=${answer} text=${answer} />`)}</p>`}
    <div class="choices">${buttons}</div>
    <${PendingVerdict} chosen=${chosen} undo=${undo} />
    <label class="note">Note <input value=${note} onInput=${(event) => setNote(event.target.value)} maxlength="2000" placeholder="stored with your verdict" /></label>
  </section>`;
}

/**
 * Calls `action` after `UNDO_MS`, or at once if the page is left before. A new `key` starts the time again; null stops
 * it.
 *
 * @param {() => void} action
 * @param {string | null} key
 */
function useDelayed(action, key) {
  const latestAction = useRef(/** @type {(() => void) | null} */ (null));
  latestAction.current = key === null ? null : action;
  const callNow = () => latestAction.current?.();
  useEffect(() => {
    if (key === null) return undefined;
    const timer = setTimeout(callNow, UNDO_MS);
    return () => clearTimeout(timer);
  }, [key]);
  useEffect(() => {
    addEventListener("pagehide", callNow);
    return () => {
      removeEventListener("pagehide", callNow);
      callNow();
    };
  }, []);
}

/** @param {{ chosen: Verdict | null, undo: () => void }} props */
function PendingVerdict({ chosen, undo }) {
  /** @param {EventOn<HTMLButtonElement>} event */
  function onUndo(event) {
    // The button disappears and would take the focus with it, so the focus moves to the chosen verdict first.
    /** @type {HTMLElement | null | undefined} */
    const chosenButton = event.target.closest("section")?.querySelector("[aria-pressed=true]");
    chosenButton?.focus();
    undo();
  }
  const choice = CHOICES.find(([verdict]) => verdict === chosen);
  if (!choice) {
    return html`<p class="pending">A verdict is sent ${UNDO_MS / 1000} seconds after you choose it. Until then you can change it.</p>`;
  }
  const [verdict, , name] = choice;
  return html`<p class="pending"><b class=${`s-${verdict}`}>${name}</b> is being sent. <button type="button" class="quiet" onClick=${onUndo}>Undo <${KeyHint}>u</${KeyHint}></button></p>`;
}

/**
 * @param {{
 *   progress: Schemas["SampleProgress"], sentCount: number, annotator: string, changeName: () => void,
 * }} props `sentCount` is the number of verdicts since the page was opened
 */
function Progress({ progress, sentCount, annotator, changeName }) {
  const { drawn, annotated, settled } = progress;
  return html`<div class="now">
    <b>${annotator}</b> <button type="button" class="quiet" onClick=${changeName}>Change name</button>
    <progress max=${Math.max(1, drawn)} value=${annotated} aria-label="Questions that you have labelled"></progress>
    <span>${number(annotated)} of ${number(drawn)} labelled by you · ${number(settled)} settled${sentCount ? ` · ${sentCount} in this session` : ""}</span>
  </div>`;
}

/**
 * Shown when no question is left for the annotator, with a form to draw a sample or a larger one.
 *
 * @param {RunIteration & { progress: Schemas["SampleProgress"], reload: () => Promise<void> }} props
 */
function NothingToLabel({ run, iteration, progress, reload }) {
  const { drawn, annotated, settled } = progress;
  const [size, setSize] = useState(drawn + 50);
  async function draw() {
    const path = "/runs/{run}/iterations/{iteration}/samples";
    await post(path, { run, iteration }, { oracle: "human", size: Number(size) });
    await reload();
  }
  return html`<${Panel} title=${drawn ? "No questions left to label" : "No sample has been drawn yet"}>
    <${Empty}>${drawn ? `The sample has ${number(drawn)} questions: ${number(settled)} are settled, and you have labelled ${number(annotated)}.` : "A sample is drawn at random from each range of p̂, in proportion to the number of questions in it."}</${Empty}>
    <label>Sample size <input type="number" min="1" max="100000" value=${size} onInput=${(event) => setSize(event.target.value)} /></label>
    <${ActionButton} action=${draw}>${drawn ? "Draw more" : "Draw a sample"}</${ActionButton}>
  </${Panel}>`;
}
