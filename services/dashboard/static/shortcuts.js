// Keys that act without a modifier. Whoever speaks to their computer, or hits keys by accident, can turn them off.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { local } from "./stored.js";

const NAME = "coevo-shortcuts";
const CHANGED = "coevo:shortcuts";
const TAKES_TEXT = "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), select, textarea, [contenteditable]";
const TAKES_ENTER = "a, button, summary";

const areOn = () => local.get(NAME) !== "off";

function useAreOn() {
  const [on, setOn] = useState(areOn());
  useEffect(() => {
    const changed = () => setOn(areOn());
    addEventListener(CHANGED, changed);
    return () => removeEventListener(CHANGED, changed);
  }, []);
  return on;
}

/** Do `acts[key]`, of lower-case keys, where that key is meant for the page: not written into a field, nor held down. */
export function useShortcuts(acts) {
  const latest = useRef(acts);
  latest.current = acts;
  useEffect(() => {
    function onKey(event) {
      if (!areOn() || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || event.repeat) return;
      if (event.target.closest(TAKES_TEXT) || (event.key === "Enter" && event.target.closest(TAKES_ENTER))) return;
      const act = latest.current[event.key.toLowerCase()];
      if (!act) return;
      event.preventDefault();
      act();
    }
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

/** A key beside what it does, while it does it. */
export const Key = ({ children }) => (useAreOn() ? html`<kbd>${children}</kbd>` : null);

export function ShortcutSwitch() {
  const on = useAreOn();
  function change(event) {
    local.set(NAME, event.target.checked ? "on" : "off");
    dispatchEvent(new Event(CHANGED));
  }
  return html`<label><input type="checkbox" checked=${on} onChange=${change} /> Single-key shortcuts</label>`;
}
