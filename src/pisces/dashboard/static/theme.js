// Light, dark or as the system has it: set before anything is drawn, and remembered.
(() => {
  const kept = () => {
    try { return localStorage.getItem("pisces-theme"); } catch { return null; }
  };
  const choice = kept();
  document.documentElement.dataset.theme = choice === "light" || choice === "dark" ? choice : "system";
})();
