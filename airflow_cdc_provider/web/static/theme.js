// Light or dark as Airflow's own pages are, set before anything is painted.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function apply() {
    let chosen = null;
    try {
      chosen = localStorage.getItem("theme");
    } catch {
      // a browser that keeps nothing has no choice of its own
    }
    const isDark = chosen === "dark" || (chosen !== "light" && dark.matches);
    const theme = isDark ? "dark" : "light";
    if (document.documentElement.dataset.theme !== theme) {
      document.documentElement.dataset.theme = theme;
      dispatchEvent(new CustomEvent("cdc-theme"));
    }
  }

  apply();
  dark.addEventListener("change", apply);
  addEventListener("storage", apply);
})();
