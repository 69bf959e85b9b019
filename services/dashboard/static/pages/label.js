// Labelling by hand: one question after the other, by keyboard, and blind: no votes, no p_hat, nobody else's word.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { post, useAnswer } from "../api.js";
import { number } from "../format.js";
import { Action, Empty, Heading, Loading, Panel, Problem } from "../parts.js";
import { Answer, Typeset } from "../math.js";
import { Key, useShortcuts } from "../shortcuts.js";
import { local, PERSON } from "../stored.js";

const UNDO_MS = 1_500; // a word cannot be taken back once it is sent
const CHOICES = [
  ["right", "r", "Right", "The answer is the question's answer."],
  ["wrong", "w", "Wrong", "The question has another answer."],
  ["ill_posed", "i", "Ill-posed", "The question has no one answer."],
  ["unknown", "s", "Skip", "I cannot say."],
];

export function LabelPage({ run, t }) {
  const [name, setName] = useState(local.get(PERSON) ?? "");
  if (!run) return html`<${Heading} title="Label by hand">Choose an iteration of a run: its page leads here. <a href="/">All runs</a></${Heading}>`;
  const place = `/runs/${encodeURIComponent(run)}`;
  return html`
    <${Heading} trail=${[["Runs", "/"], [run, place], [`iteration ${t}`, `${place}/${t}`]]} title="Label by hand">
      Is the pseudo-label the right answer to its question? Two people's word settles it.
    </${Heading}>
    ${name ? html`<${Labelling} api=${`${place}/iterations/${t}`} name=${name} rename=${() => setName("")} />` : html`<${WhoAreYou} say=${(given) => (local.set(PERSON, given), setName(given))} />`}
  `;
}

function WhoAreYou({ say }) {
  const [name, setName] = useState("");
  return html`<form class="card form" onSubmit=${(event) => (event.preventDefault(), say(name.trim()))}>
    <label>Your name <input value=${name} onInput=${(event) => setName(event.target.value)} required maxlength="100" /></label>
    <p class="about">It is kept with what you say.</p>
    <button>Begin</button>
  </form>`;
}

function Labelling({ api, name, rename }) {
  const { data: first, error, again } = useAnswer(`${api}/labelling/next`, { annotator: name });
  const [after, setAfter] = useState(null); // what the last word was answered with: the next question
  const [problem, setProblem] = useState(null);
  const [note, setNote] = useState("");
  const [said, setSaid] = useState(0);
  const data = after ?? first;
  const question = data?.question ?? null;
  const [chosen, setChosen] = useState(null); // the verdict that is about to be sent
  const sent = useRef(null); // the question that the last word was of: no other word is, while it is on its way

  async function send() {
    if (!waits()) return;
    const about = question;
    sent.current = about.index;
    setChosen(null);
    try {
      setAfter(await post(`${api}/labelling/${about.index}`, { annotator: name, verdict: chosen, note }, { keepalive: true }));
      setProblem(null);
      setNote("");
      setSaid((count) => count + 1);
    } catch (failed) {
      sent.current = null;
      setProblem(failed);
      setAfter(null);
      again();
    }
  }

  function drawn() {
    setAfter(null);
    again();
  }

  const waits = () => question !== null && question.index !== sent.current;

  /** One key is enough; the same once more does not wait. */
  function choose(verdict) {
    if (!waits()) return;
    if (verdict === chosen) send();
    else setChosen(verdict);
  }

  const undo = () => setChosen(null);
  useLater(send, chosen === null ? null : `${chosen} ${note}`);
  useShortcuts({ ...Object.fromEntries(CHOICES.map(([verdict, key]) => [key, () => choose(verdict)])), ...(chosen && { u: undo, enter: send }) });

  return html`<${Loading} data=${data} error=${error}>
    ${data && html`<${Progress} progress=${data.progress} said=${said} name=${data.annotator} rename=${rename} />`}
    <${Problem} error=${problem} />
    ${data && (question
      ? html`<section class="panel labelling" aria-live="polite">
          <h2 class="sr">Question ${question.index}</h2>
          <p class="prose"><${Typeset} text=${question.text} /></p>
          <p class="claimed"><span>Pseudo-label</span> <${Answer} text=${question.label} /></p>
          ${question.answers.length > 1 && html`<p class="about">Answers that were given: ${question.answers.map((answer, i) => html`${i ? ", " : ""}<${Answer} key=${answer} text=${answer} />`)}</p>`}
          <div class="choices">
            ${CHOICES.map(([verdict, key, word, about]) => html`<button key=${verdict} type="button" class=${`s-${verdict}`} aria-pressed=${chosen === verdict} onClick=${() => choose(verdict)} title=${about}><${Key}>${key}</${Key}>${word}</button>`)}
          </div>
          <${Pending} chosen=${chosen} undo=${undo} />
          <label class="note">Note <input value=${note} onInput=${(event) => setNote(event.target.value)} maxlength="2000" placeholder="kept with your word" /></label>
        </section>`
      : html`<${Done} api=${api} progress=${data.progress} again=${drawn} />`)}
  </${Loading}>`;
}

/** Do `work` a moment after `what` has changed, or at once where the page is left; null is nothing to do. */
function useLater(work, what) {
  const latest = useRef(work);
  latest.current = what === null ? null : work;
  const now = () => latest.current?.();
  useEffect(() => {
    if (what === null) return undefined;
    const timer = setTimeout(now, UNDO_MS);
    return () => clearTimeout(timer);
  }, [what]);
  useEffect(() => {
    addEventListener("pagehide", now);
    return () => {
      removeEventListener("pagehide", now);
      now();
    };
  }, []);
}

function Pending({ chosen, undo }) {
  function takeBack(event) {
    // The button goes, and the keyboard with it, unless it is led back to the choice.
    event.target.closest("section").querySelector("[aria-pressed=true]").focus();
    undo();
  }
  if (chosen === null) return html`<p class="pending">What you choose is sent after a moment; until then it can be changed.</p>`;
  const [, , word] = CHOICES.find(([verdict]) => verdict === chosen);
  return html`<p class="pending"><b class=${`s-${chosen}`}>${word}</b> is being sent. <button type="button" class="quiet" onClick=${takeBack}>Undo <${Key}>u</${Key}></button></p>`;
}

function Progress({ progress, said, name, rename }) {
  return html`<div class="now">
    <b>${name}</b> <button type="button" class="quiet" onClick=${rename}>not you?</button>
    <progress max=${Math.max(1, progress.drawn)} value=${progress.said} aria-label="What you have said something about"></progress>
    <span>${number(progress.said)} of ${number(progress.drawn)} by you · ${number(progress.settled)} settled${said ? ` · ${said} now` : ""}</span>
  </div>`;
}

function Done({ api, progress, again }) {
  const [size, setSize] = useState(progress.drawn + 50);
  async function draw() {
    await post(`${api}/samples`, { oracle: "human", size: Number(size) });
    again();
  }
  return html`<${Panel} title=${progress.drawn ? "Nothing is left for you" : "No sample has been drawn yet"}>
    <${Empty}>${progress.drawn ? `Of ${number(progress.drawn)} questions ${number(progress.settled)} are settled; you have said something about ${number(progress.said)}.` : "A sample is drawn at random from each stretch of p̂, in proportion."}</${Empty}>
    <label>Questions in all <input type="number" min="1" max="100000" value=${size} onInput=${(event) => setSize(event.target.value)} /></label>
    <${Action} work=${draw}>${progress.drawn ? "Draw more" : "Draw a sample"}</${Action}>
  </${Panel}>`;
}
