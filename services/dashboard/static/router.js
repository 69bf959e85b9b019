// Client-side navigation: a click on a link changes the address and redraws, without loading the page again.
import { useEffect, useState } from "/static/preact.js";

const NAVIGATED = "coevo:navigated";
let currentPath = location.pathname;
let headingNeedsFocus = false; // after a change of page, until the new page has drawn its heading

/**
 * @param {string} url
 * @param {{ replace?: boolean }} [options] with `replace`, the browser's history gets no new entry
 */
export function navigate(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  dispatchEvent(new Event(NAVIGATED));
}

/** @param {string} run */
export const runUrl = (run) => `/runs/${encodeURIComponent(run)}`;

/** @param {string} checkpoint its id, "run/role/iteration" */
export function checkpointUrl(checkpoint) {
  const [run, role, iteration] = checkpoint.split("/");
  return `${runUrl(run)}/checkpoints/${role}/${iteration}`;
}

/** @param {{ run: string, role: string, iteration: string | number }} training */
export const trainingUrl = ({ run, role, iteration }) => `${runUrl(run)}/training/${role}/${iteration}`;

/** `path` with the query, if there is any. @param {string} path @param {URLSearchParams} query */
export const withQuery = (path, query) => `${path}${String(query) && `?${query}`}`;

const mainElement = () => document.getElementById("main");

/**
 * After a change of page, the focus moves to the page's content: the keyboard starts at its top, and a screen reader
 * reads it. A change of the query only, such as another filter, leaves the focus where it is.
 */
function moveFocusToNewPage() {
  if (location.pathname === currentPath) return;
  currentPath = location.pathname;
  headingNeedsFocus = true;
  mainElement()?.focus({ preventScroll: true });
}

/**
 * Moves the focus to the heading of a page that was just navigated to, unless the user has focused something else by
 * then.
 *
 * @param {HTMLElement | null} heading
 */
export function focusHeading(heading) {
  if (!headingNeedsFocus) return;
  headingNeedsFocus = false;
  const focused = document.activeElement;
  if (focused === document.body || focused === mainElement()) heading?.focus({ preventScroll: true });
}

/** The path and query of the current address. The component is drawn again when they change. */
export function useLocation() {
  const [, setCount] = useState(0);
  useEffect(() => {
    function onNavigation() {
      moveFocusToNewPage();
      setCount((count) => count + 1);
    }
    addEventListener(NAVIGATED, onNavigation);
    addEventListener("popstate", onNavigation);
    return () => {
      removeEventListener(NAVIGATED, onNavigation);
      removeEventListener("popstate", onNavigation);
    };
  }, []);
  return { path: decodePath(location.pathname), query: new URLSearchParams(location.search) };
}

/**
 * The decoded path. If its escapes are not UTF-8 it stays as it is, and leads to the "page not found" page.
 *
 * @param {string} path
 */
function decodePath(path) {
  try {
    return decodeURI(path);
  } catch (error) {
    if (error instanceof URIError) return path;
    throw error;
  }
}

/** Makes clicks on links within the dashboard, including those in charts, navigate without loading the page again. */
export function interceptLinks() {
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.composedPath().find((target) => target instanceof Element && target.localName === "a");
    if (!(link instanceof HTMLAnchorElement || link instanceof SVGAElement)) return;
    if (link.hasAttribute("download") || link.getAttribute("target")) return;
    const href = typeof link.href === "string" ? link.href : link.href.baseVal;
    const url = new URL(href, location.href);
    if (url.origin !== location.origin || url.pathname.startsWith("/api/")) return;
    if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
    event.preventDefault();
    navigate(url.pathname + url.search + url.hash);
    scrollTo(0, 0);
  });
}
