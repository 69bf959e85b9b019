// Exports Preact, its hooks and htm, which index.html loads as globals, so that the modules can import them by name.
const { h, options, render } = window.preact;
const { useEffect, useLayoutEffect, useRef, useState } = window.preactHooks;

/** @typedef {(strings: TemplateStringsArray, ...values: TemplateValue[]) => import("preact").VNode} Html */
const html = /** @type {Html} */ (window.htm.bind(h));

export { html, options, render, useEffect, useLayoutEffect, useRef, useState };
