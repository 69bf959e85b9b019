// Shows questions and answers, with their mathematics typeset. Text from a model is shown as text, never as HTML, and
// only texts of limited length are typeset.
import { html, useLayoutEffect, useRef } from "/static/preact.js";
import { report } from "./api.js";

const MAX_TYPESET_LENGTH = 4000; // characters; a longer text is shown as it is
const MAX_ANSWER_LENGTH = 300; // characters; a longer answer is cut off
const KATEX_OPTIONS = {
  delimiters: [
    { left: "$$", right: "$$", display: true },
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
    { left: "$", right: "$", display: false },
  ],
  throwOnError: false,
  errorCallback: () => {}, // text that is not valid mathematics is shown as it is
  errorColor: "currentColor", // KaTeX's red cannot be read on a dark page
  strict: "ignore",
  trust: false, // no links, no images, no HTML
  maxSize: 20,
  maxExpand: 200,
  ...(report && { output: "mathml" }), // drawn by the browser, so that a report needs no fonts
};

/**
 * Text from a model, with its mathematics typeset. Unicode's direction marks in it (such as U+202E) have no effect on
 * the text after it, because the class `written` isolates it.
 *
 * @param {{ text: string, class?: string }} props
 */
export function Typeset({ text, class: className = "", ...attributes }) {
  const container = useRef(/** @type {HTMLElement | null} */ (null));
  // A layout effect runs before the browser paints, so a row is never visible without its text.
  useLayoutEffect(() => {
    if (!container.current) return;
    container.current.textContent = text;
    if (text.length <= MAX_TYPESET_LENGTH && /[$\\]/.test(text)) renderMathInElement(container.current, KATEX_OPTIONS);
  }, [text]);
  return html`<span ref=${container} class=${`written ${className}`} ...${attributes}></span>`;
}

/**
 * An answer. If it contains a command, a power, an index or a group, all of it is typeset as mathematics.
 *
 * @param {{ text: string | null }} props
 */
export function Answer({ text }) {
  if (text === null) return html`<span class="none">no answer</span>`;
  const shown = text.length > MAX_ANSWER_LENGTH ? `${text.slice(0, MAX_ANSWER_LENGTH)}…` : text;
  const isFormula = /[\\^_{}]/.test(shown) && !shown.includes("$");
  return html`<${Typeset} class="answer" text=${isFormula ? `$${shown}$` : shown} />`;
}
