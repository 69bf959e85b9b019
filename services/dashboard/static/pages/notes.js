// Tags and the note of a run: shown in lists, and edited in place on the run's page.
import { html, useEffect, useRef, useState } from "/static/preact.js";
import { post, toError } from "../api.js";
import { timeAgo } from "../format.js";
import { ErrorMessage } from "../parts.js";

/** @typedef {Schemas["RunSummary"]} Run */

/** The tags of a run, each a link to the runs that have it. @param {{ tags: string[] }} props */
export const Tags = ({ tags }) =>
  tags.length === 0
    ? null
    : html`<ul class="tags" aria-label="Tags">${tags.map((tag) => html`<li key=${tag}><a class="chip" href=${`/?tag=${encodeURIComponent(tag)}`}>${tag}</a></li>`)}</ul>`;

/** The tags and the note of a run in a list. @param {{ run: Run }} props */
export const NotesOf = ({ run: { tags, note } }) =>
  html`<${Tags} tags=${tags} />${note && html`<p class="note-text"><bdi>${note}</bdi></p>`}`;

/** @param {{ run: Run, refetch: () => void }} props */
export function EditNotes({ run, refetch }) {
  const [isOpen, setOpen] = useState(false);
  const [saved, setSaved] = useState("");
  const openButton = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {string} message */
  function close(message) {
    setOpen(false);
    setSaved(message);
    openButton.current?.focus();
  }
  const by = run.noted_at && ` Changed ${timeAgo(run.noted_at)}${run.noted_by ? ` by ${run.noted_by}` : ""}.`;
  return html`<section class="notes" aria-label="Tags and note">
    ${!isOpen && html`<${NotesOf} run=${run} />`}
    <p class="meta">
      <button type="button" class="quiet" ref=${openButton} aria-expanded=${isOpen} onClick=${() => (isOpen ? close("") : setOpen(true))}>${isOpen ? "Close" : "Edit tags and note"}</button>
      <span role="status"> ${saved}</span>${!isOpen && by}
    </p>
    ${isOpen && html`<${NotesForm} run=${run} refetch=${refetch} close=${close} />`}
  </section>`;
}

/** @param {{ run: Run, refetch: () => void, close: (message: string) => void }} props */
function NotesForm({ run, refetch, close }) {
  const first = useRef(/** @type {HTMLElement | null} */ (null));
  const [before] = useState({ tags: run.tags, note: run.note }); // what this person saw; the page goes on polling
  const [tags, setTags] = useState(before.tags.join(" "));
  const [note, setNote] = useState(before.note);
  const [isSaving, setSaving] = useState(false);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => first.current?.focus(), []);
  async function save() {
    setSaving(true);
    setError(null);
    const wanted = tags.split(/[\s,]+/).filter(Boolean);
    try {
      await post(
        "/runs/{run}/notes",
        { run: run.name },
        {
          // Only what this person changed, so that a tag that somebody else has just added stays.
          add: wanted.filter((tag) => !before.tags.includes(tag)),
          remove: before.tags.filter((tag) => !wanted.includes(tag)),
          note: note === before.note ? null : note,
        },
      );
      refetch();
      close("Saved.");
    } catch (thrown) {
      setError(toError(thrown));
      setSaving(false);
    }
  }
  /** @param {KeyboardEvent} event */
  function onKeyDown(event) {
    event.stopPropagation(); // so that no shortcut of the page takes the key
    if (event.key === "Escape") close("Not saved.");
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  }
  /** @param {Event} event */
  function onSubmit(event) {
    event.preventDefault();
    save();
  }
  return html`<form class="form" onSubmit=${onSubmit} onKeyDown=${onKeyDown}>
    <${ErrorMessage} error=${error} />
    <label>Tags, with spaces between them <input ref=${first} value=${tags} onInput=${(event) => setTags(event.target.value)} autocapitalize="off" spellcheck=${false} /></label>
    <label>Note <textarea rows="4" maxlength="4000" value=${note} onInput=${(event) => setNote(event.target.value)}></textarea></label>
    <div class="actions"><button disabled=${isSaving}>${isSaving ? "Saving…" : "Save"}</button><small>Ctrl+Enter saves, Escape closes without saving.</small></div>
  </form>`;
}
