// The API reference: Redoc over the API's own description, in the colours of the dashboard.
const probe = document.body.appendChild(document.createElement("span"));

/** The value of a colour of app.css in the current theme, as Redoc can read it. @param {string} name */
function colour(name) {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const names = ["--paper", "--ink", "--muted", "--line", "--c-solver", "--right", "--wrong"];
const [paper, ink, muted, line, link, right, wrong] = names.map(colour);
probe.remove();
const options = {
  disableSearch: true, // it runs in a worker made of a text, which the content security policy forbids
  hideDownloadButton: true,
  hideHostname: true,
  scrollYOffset: ".bar",
  jsonSamplesExpandLevel: 3,
  theme: {
    colors: {
      primary: { main: link },
      success: { main: right },
      error: { main: wrong },
      text: { primary: ink, secondary: muted },
      border: { dark: line, light: line },
      gray: { 50: paper, 100: paper },
    },
    schema: { nestedBackground: paper, typeNameColor: muted, typeTitleColor: muted, linesColor: line },
    sidebar: { backgroundColor: paper, textColor: ink, activeTextColor: link },
    typography: {
      fontFamily: "inherit",
      fontSize: "15px",
      headings: { fontFamily: "inherit" },
      code: { backgroundColor: paper, color: ink, fontSize: "13px" },
      links: { color: link, visited: link, hover: link },
    },
  },
};
// Redoc asks another server for the logo in its menu, and leaves it out if it cannot be loaded. Here no script loads an
// image, so nothing is requested that the content security policy would block.
const { prototype } = HTMLImageElement;
const { setAttribute } = prototype;
/** @param {string} name @param {string} value */
prototype.setAttribute = function (name, value) {
  if (name !== "src") setAttribute.call(this, name, value);
};
Object.defineProperty(prototype, "src", {
  set() {
    this.dispatchEvent(new Event("error"));
  },
});
// Redoc reads the colours only once.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => location.reload());
window.Redoc.init("/api/openapi.json", options, document.getElementById("reference"));
