// Applies the colour theme that was chosen in this browser before anything is drawn. Without a choice, the system's
// theme applies.
try {
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
} catch (error) {
  if (!(error instanceof DOMException)) throw error; // a DOMException means that the browser allows no storage
}
