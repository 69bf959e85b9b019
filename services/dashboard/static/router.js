// Pages have addresses: a click on a link changes the address and draws, without loading anything anew.
import { useEffect, useState } from "/static/preact.js";

let path = location.pathname; // of the page that was come to last
let arriving = false; // at a page that has no heading yet

export function go(url, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", url);
  dispatchEvent(new Event("coevo:moved"));
}

const main = () => document.getElementById("main");

/** On another page the keyboard begins at its top, and a screen reader reads it; another filter is no other page. */
function leave() {
  if (location.pathname === path) return;
  path = location.pathname;
  arriving = true;
  main()?.focus({ preventScroll: true });
}

/** The page that was gone to has its heading, which takes the focus, unless a person was quicker. */
export function arrive(heading) {
  if (!arriving) return;
  arriving = false;
  if ([main(), document.body].includes(document.activeElement)) heading.focus({ preventScroll: true });
}

/** The address's path and query, as they are now. */
export function useLocation() {
  const [, setCount] = useState(0);
  useEffect(() => {
    const moved = () => (leave(), setCount((n) => n + 1));
    addEventListener("coevo:moved", moved);
    addEventListener("popstate", moved);
    return () => {
      removeEventListener("coevo:moved", moved);
      removeEventListener("popstate", moved);
    };
  }, []);
  return { path: decoded(location.pathname), query: new URLSearchParams(location.search) };
}

/** The path as people read it; as it stands where its escapes are not UTF-8, so that it is a page that is not there. */
function decoded(path) {
  try {
    return decodeURI(path);
  } catch (error) {
    if (error instanceof URIError) return path;
    throw error;
  }
}

/** Links within the dashboard, those in pictures too, move without loading. */
export function followLinks() {
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const link = event.composedPath().find((node) => node.localName === "a");
    if (!link || link.hasAttribute("download") || link.getAttribute("target")) return;
    const href = typeof link.href === "string" ? link.href : link.href.baseVal;
    const url = new URL(href, location.href);
    if (url.origin !== location.origin || url.pathname.startsWith("/api/")) return;
    if (url.hash && url.pathname === location.pathname && url.search === location.search) return;
    event.preventDefault();
    go(url.pathname + url.search);
    scrollTo(0, 0);
  });
}
