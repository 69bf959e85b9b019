// Single-key shortcuts, without a modifier. Users can turn them off: with speech input, or when keys are pressed by
// accident, they would act unintentionally.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { browserStorage } from "./stored.js";

const STORAGE_KEY = "coevo-shortcuts";
const CHANGED = "coevo:shortcuts";
const TAKES_TEXT =
  "input:not([type=checkbox], [type=radio], [type=button], [type=submit]), select, textarea, [contenteditable]";
const TAKES_ENTER = "a, button, summary";

const shortcutsEnabled = () => browserStorage.get(STORAGE_KEY) !== "off";

function useShortcutsEnabled() {
  const [enabled, setEnabled] = useState(shortcutsEnabled());
  useEffect(() => {
    const onChange = () => setEnabled(shortcutsEnabled());
    addEventListener(CHANGED, onChange);
    return () => removeEventListener(CHANGED, onChange);
  }, []);
  return enabled;
}

/**
 * Calls `actions[key]` when a key is pressed that is meant for the page: not typed into a field, and not held down.
 *
 * @param {Record<string, () => void>} actions by key, in lower case
 */
export function useShortcuts(actions) {
  const latestActions = useRef(actions);
  latestActions.current = actions;
  useEffect(() => {
    /** @param {KeyboardEvent} event */
    function onKeyDown(event) {
      if (!shortcutsEnabled() || event.repeat) return;
      if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      const target = event.target instanceof Element ? event.target : document.body;
      if (target.closest(TAKES_TEXT) || (event.key === "Enter" && target.closest(TAKES_ENTER))) return;
      const action = latestActions.current[event.key.toLowerCase()];
      if (!action) return;
      event.preventDefault();
      action();
    }
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
}

/**
 * The key that triggers an action, shown beside it while shortcuts are enabled.
 *
 * @param {{ children?: Children }} props
 */
export const KeyHint = ({ children }) => (useShortcutsEnabled() ? html`<kbd>${children}</kbd>` : null);

export function ShortcutSwitch() {
  const enabled = useShortcutsEnabled();
  /** @param {EventOn<HTMLInputElement>} event */
  function onChange(event) {
    browserStorage.set(STORAGE_KEY, event.target.checked ? "on" : "off");
    dispatchEvent(new Event(CHANGED));
  }
  return html`<label><input type="checkbox" checked=${enabled} onChange=${onChange} /> Single-key shortcuts</label>`;
}
