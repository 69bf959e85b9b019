// Preact, its hooks and htm, which index.html loads as their authors published them, under the names that modules import.
const { h, render } = window.preact;
const { useEffect, useLayoutEffect, useRef, useState } = window.preactHooks;
const html = window.htm.bind(h);
export { html, render, useEffect, useLayoutEffect, useRef, useState };
