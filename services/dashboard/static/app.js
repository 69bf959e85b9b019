// The frame around every page, and the choice of the page that belongs to an address.
import { html, render, useEffect, useState } from "/static/preact.js";
import { ApiError, askOtherTabs, forgetApiKey, hasApiKey, storeApiKey, useResponse } from "./api.js";
import { AlertsPage } from "./pages/alerts.js";
import { CheckpointPage } from "./pages/checkpoint.js";
import { ComparePage } from "./pages/compare.js";
import { ConfigurationPage } from "./pages/configuration.js";
import { EvaluationPage } from "./pages/evaluation.js";
import { EvaluationsPage } from "./pages/evaluations.js";
import { IterationPage } from "./pages/iteration.js";
import { LabelPage } from "./pages/label.js";
import { QuestionPage } from "./pages/question.js";
import { RunPage } from "./pages/run.js";
import { RunsPage } from "./pages/runs.js";
import { TrainingPage } from "./pages/training.js";
import { ErrorMessage, Heading } from "./parts.js";
import { interceptLinks, useLocation } from "./router.js";
import { ShortcutSwitch } from "./shortcuts.js";
import { browserStorage } from "./stored.js";

/** @type {[pattern: RegExp, page: (props: any) => unknown][]} a pattern's groups become the properties of its page */
const PAGES = [
  [/^\/$/, RunsPage],
  [/^\/compare$/, ComparePage],
  [/^\/alerts$/, AlertsPage],
  [/^\/evaluations$/, EvaluationsPage],
  [/^\/evaluations\/(?<id>[0-9a-f]{16})$/, EvaluationPage],
  [/^\/label$/, LabelPage],
  [/^\/runs\/(?<run>[^/]+)$/, RunPage],
  [/^\/runs\/(?<run>[^/]+)\/configuration$/, ConfigurationPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<iteration>\d+)$/, IterationPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<iteration>\d+)\/label$/, LabelPage],
  [/^\/runs\/(?<run>[^/]+)\/(?<iteration>\d+)\/(?<index>\d+)$/, QuestionPage],
  [/^\/runs\/(?<run>[^/]+)\/training\/(?<role>challenger|solver)\/(?<iteration>\d+)$/, TrainingPage],
  [/^\/runs\/(?<run>[^/]+)\/checkpoints\/(?<role>base|challenger|labelled|solver)\/(?<iteration>\d+)$/, CheckpointPage],
];
/** @type {[name: string, href: string, currentPaths: RegExp][]} */
const LINKS = [
  ["Runs", "/", /^\/($|runs)/],
  ["Compare", "/compare", /^\/compare/],
  ["Evaluations", "/evaluations", /^\/evaluations/],
  ["Alerts", "/alerts", /^\/alerts/],
];

// `coevo up` prints an address that contains the API key. The key is removed from the address, so that it is neither in
// the browser's history nor in an address that a person copies.
const keyInAddress = new URLSearchParams(location.hash.slice(1)).get("key");
if (keyInAddress) {
  storeApiKey(keyInAddress);
  history.replaceState(null, "", location.pathname + location.search);
}

function App() {
  const { path, query } = useLocation();
  const { error, refetch } = useResponse("/runs", { limit: 1 }); // shows whether the API accepts the key
  const status = error instanceof ApiError ? error.status : null;
  const needsKey = status === 401 || (status === 403 && !hasApiKey());
  return html`
    <a class="skip" href="#main">Skip to content</a>
    <${TopBar} path=${path} />
    <main id="main" tabindex="-1">${needsKey ? html`<${KeyForm} error=${error} refetch=${refetch} />` : html`<${Page} path=${path} query=${query} />`}</main>
    <footer class="foot"><a href="/api/docs">API reference</a> <${ShortcutSwitch} /></footer>
  `;
}

/** @param {{ path: string, query: URLSearchParams }} props */
function Page({ path, query }) {
  for (const [pattern, PageComponent] of PAGES) {
    const match = pattern.exec(path);
    if (match) return html`<${PageComponent} key=${path} query=${query} ...${match.groups} />`;
  }
  return html`<${Heading} title="Page not found">There is no page at ${path}. <a href="/">All runs</a></${Heading}>`;
}

/** @param {{ path: string }} props */
function TopBar({ path }) {
  return html`<header class="bar">
    <a class="mark" href="/"><img src="/static/icon.svg" alt="" width="26" height="26" /><span>coevo</span></a>
    <nav aria-label="Pages">
      ${LINKS.map(([name, href, currentPaths]) => html`<a key=${href} href=${href} aria-current=${currentPaths.test(path) ? "page" : null}>${name}${name === "Alerts" && html`<${OpenAlerts} />`}</a>`)}
    </nav>
    <${ThemeSwitch} />
    ${hasApiKey() && html`<button type="button" class="quiet forget" onClick=${forgetApiKey}>Forget key</button>`}
  </header>`;
}

/** The number of alerts that nobody has acknowledged. */
function OpenAlerts() {
  const { data } = useResponse("/alerts", { acknowledged: false, limit: 100 }, 15_000);
  if (!data || data.items.length === 0) return null;
  return html`<span class="count">${data.items.length}${data.next ? "+" : ""}<span class="sr"> open</span></span>`;
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme);
  const isDark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const otherTheme = isDark ? "light" : "dark";
  function switchTheme() {
    browserStorage.set("theme", otherTheme);
    document.documentElement.dataset.theme = otherTheme;
    setTheme(otherTheme);
  }
  return html`<button type="button" class="quiet theme" onClick=${switchTheme} aria-label=${`Switch to the ${otherTheme} theme`}>
    <span aria-hidden="true">${isDark ? "☀" : "☾"}</span>
  </button>`;
}

/** @param {{ error: Error | null, refetch: () => void }} props */
function KeyForm({ error, refetch }) {
  const [apiKey, setApiKey] = useState("");
  useEffect(() => (hasApiKey() ? undefined : askOtherTabs(refetch)), []);
  /** @param {Event} event */
  function onSubmit(event) {
    event.preventDefault();
    storeApiKey(apiKey.trim());
    refetch();
  }
  return html`<${Heading} title="API key required">
      On the machine of the services, <code>coevo status --secrets</code> prints the dashboard's address with a key, and <code>coevo store keys add NAME</code> makes another one. The key is kept until the last tab of the dashboard is closed.
    </${Heading}>
    <form class="card" onSubmit=${onSubmit}>
      ${hasApiKey() && html`<${ErrorMessage} error=${error} />`}
      <label>API key <input type="password" value=${apiKey} onInput=${(event) => setApiKey(event.target.value)} autocomplete="off" required /></label>
      <button>Use this key</button>
    </form>`;
}

interceptLinks();
const container = document.getElementById("app");
if (container) render(html`<${App} />`, container);
