// Before anything is drawn: the colours that this browser was told to use, or those of its system.
try {
  document.documentElement.dataset.theme = localStorage.getItem("theme") ?? "";
} catch (error) {
  if (!(error instanceof DOMException)) throw error; // it keeps no storage
}
