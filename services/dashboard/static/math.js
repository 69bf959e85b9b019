// Questions and answers as mathematics, where they say so. What a model wrote is text: never HTML, and bounded.
import { html, useLayoutEffect, useRef } from "/static/preact.js";

const LONGEST = 4000; // characters that are typeset
const OPTIONS = {
  delimiters: [
    { left: "$$", right: "$$", display: true },
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
    { left: "$", right: "$", display: false },
  ],
  throwOnError: false,
  errorCallback: () => {}, // what is no mathematics stays as it was written
  strict: "ignore",
  trust: false, // no links, no images, no HTML
  maxSize: 20,
  maxExpand: 200,
};

/** What a model wrote, with its mathematics typeset. Marks of direction in it (U+202E and its like) end with it. */
export function Typeset({ text, class: more = "", ...rest }) {
  const place = useRef();
  // Before anything is painted: no row is ever seen without its text.
  useLayoutEffect(() => {
    place.current.textContent = text;
    if (text.length <= LONGEST && /[$\\]/.test(text)) renderMathInElement(place.current, OPTIONS);
  }, [text]);
  return html`<span ref=${place} class=${`written ${more}`} ...${rest}></span>`;
}

/** An answer, which is mathematics as a whole where it has a command or a power in it. */
export function Answer({ text }) {
  if (text === null) return html`<span class="none">no answer</span>`;
  const shown = text.length > 300 ? `${text.slice(0, 300)}…` : text;
  return /[\\^_{}]/.test(shown) && !shown.includes("$")
    ? html`<${Typeset} class="answer" text=${`$${shown}$`} />`
    : html`<${Typeset} class="answer" text=${shown} />`;
}
