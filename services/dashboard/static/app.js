// The frame around every page, and which page an address is.
import { html, render, useState } from "/static/preact.js";
import { forgetKey, hasKey, useAnswer, useKey } from "./api.js";
import { followLinks, useLocation } from "./router.js";
import { Heading, Problem } from "./parts.js";
import { ShortcutSwitch } from "./shortcuts.js";
import { local } from "./stored.js";
import { AlertsPage } from "./pages/alerts.js";
import { CheckpointPage } from "./pages/checkpoint.js";
import { ComparePage } from "./pages/compare.js";
import { IterationPage } from "./pages/iteration.js";
import { LabelPage } from "./pages/label.js";
import { QuestionPage } from "./pages/question.js";
import { RunPage } from "./pages/run.js";
import { RunsPage } from "./pages/runs.js";

const PAGES = [
  [/^\/$/, RunsPage],
  [/^\/compare$/, ComparePage],
  [/^\/alerts$/, AlertsPage],
  [/^\/label$/, LabelPage],
  [/^\/runs\/(?<run>[^/]+)$/, RunPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<t>\d+)$/, IterationPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<t>\d+)\/label$/, LabelPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<t>\d+)\/(?<index>\d+)$/, QuestionPage],
  [/^\/runs\/(?<run>[^/]+)\/checkpoints\/(?<role>base|challenger|solver)\/(?<t>\d+)$/, CheckpointPage],
];
const LINKS = [["Runs", "/", /^\/($|runs)/], ["Compare", "/compare", /^\/compare/], ["Alerts", "/alerts", /^\/alerts/]];

// `coevo up` prints an address with its key. It stays out of the browser's history, and out of what a person copies.
const given = new URLSearchParams(location.hash.slice(1)).get("key");
if (given) {
  useKey(given);
  history.replaceState(null, "", location.pathname + location.search);
}

function App() {
  const { path, query } = useLocation();
  const { error, again } = useAnswer("/runs", { limit: 1 });
  const locked = error && (error.status === 401 || (error.status === 403 && !hasKey()));
  return html`
    <a class="skip" href="#main">Skip to the page</a>
    <${Bar} path=${path} />
    <main id="main" tabindex="-1">${locked ? html`<${Unlock} error=${error} again=${again} />` : html`<${Page} path=${path} query=${query} />`}</main>
    <footer class="foot"><${ShortcutSwitch} /></footer>
  `;
}

function Page({ path, query }) {
  for (const [pattern, Found] of PAGES) {
    const match = pattern.exec(path);
    if (match) return html`<${Found} key=${path} query=${query} ...${match.groups} />`;
  }
  return html`<${Heading} title="There is no such page">Nothing is at ${path}. <a href="/">All runs</a></${Heading}>`;
}

function Bar({ path }) {
  return html`<div class="bar">
    <a class="mark" href="/"><img src="/static/icon.svg" alt="" width="26" height="26" /><span>coevo</span></a>
    <nav aria-label="Pages">
      ${LINKS.map(([name, href, here]) => html`<a key=${href} href=${href} aria-current=${here.test(path) ? "page" : null}>${name}<${Unread} of=${name} /></a>`)}
    </nav>
    <${Theme} />
    ${hasKey() && html`<button type="button" class="quiet forget" onClick=${() => (forgetKey(), location.reload())}>Forget key</button>`}
  </div>`;
}

/** How many alerts nobody has acknowledged. */
function Unread({ of }) {
  const { data } = useAnswer(of === "Alerts" ? "/alerts" : null, { acknowledged: false, limit: 100 }, 15_000);
  const count = data ? data.items.length : 0;
  return count ? html`<span class="count">${count}${data.next ? "+" : ""}<span class="sr"> open</span></span>` : null;
}

function Theme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  function change() {
    const next = dark ? "light" : "dark";
    local.set("theme", next);
    document.documentElement.dataset.theme = next;
    setTheme(next);
  }
  return html`<button type="button" class="quiet theme" onClick=${change} aria-label=${`Use the ${dark ? "light" : "dark"} colours`}>
    <span aria-hidden="true">${dark ? "☀" : "☾"}</span>
  </button>`;
}

function Unlock({ error, again }) {
  const [key, setKey] = useState("");
  function unlock(event) {
    event.preventDefault();
    useKey(key.trim());
    again();
  }
  return html`<${Heading} title="This API asks for a key">
      <code>coevo keys add NAME</code> makes one. It stays in this tab.
    </${Heading}>
    <form class="card" onSubmit=${unlock}>
      ${hasKey() && html`<${Problem} error=${error} />`}
      <label>Key <input type="password" value=${key} onInput=${(event) => setKey(event.target.value)} autocomplete="off" required /></label>
      <button>Use it</button>
    </form>`;
}

followLinks();
render(html`<${App} />`, document.getElementById("app"));
