"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // Paper is white, whatever the screen; the print styles count only after `beforeprint`.
  const printed = { "--ink": "#000", "--soft": "#444", "--grid": "#ddd", "--paper": "#fff" };
  let printing = false;
  const css = (name) => printing ? printed[name]
    : getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // Figures say nothing of the colours of text and paper: they are the page's.
  const theme = () => {
    const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--paper"].map(css);
    const axis = {
      gridcolor: grid, zerolinecolor: grid, linecolor: soft, tickcolor: soft, automargin: true,
      title: { font: { color: ink } },
    };
    return { layout: {
      font: { color: ink, family: getComputedStyle(document.body).fontFamily, size: 13 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis, yaxis: axis,
      hoverlabel: { bgcolor: paper, bordercolor: soft, font: { color: ink } },
      legend: { font: { color: ink }, bgcolor: "rgba(0,0,0,0)" },
      modebar: { color: soft, activecolor: ink, bgcolor: "rgba(0,0,0,0)" },
    } };
  };
  // Black ink is seen on white paper only.
  const seen = (value, ink) => {
    if (value === "#000000") return ink;
    if (Array.isArray(value)) return value.length > 500 ? value : value.map((v) => seen(v, ink));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, seen(v, ink)]));
    }
    return value;
  };
  const config = { responsive: true, displaylogo: false, showTips: false };
  Plotly.setPlotConfig({ logging: 0 }); // it warns of every bar coloured by a number
  const draw = (place) => {
    const { data, layout } = figures[place.dataset.figure];
    const ink = css("--ink");
    const narrow = place.clientWidth < 520;
    const own = { ...layout, template: theme() };
    return Plotly.react(place, seen(data, ink), own, narrow ? { ...config, displayModeBar: false } : config);
  };
  const places = [...document.querySelectorAll("[data-figure]")];
  const drawAll = () => places.filter((p) => p.dataset.drawn).forEach(draw);
  const first = (place) => {
    place.dataset.drawn = "yes";
    place.textContent = "";
    draw(place);
  };
  // What is not looked at is not drawn: a page of many figures opens at once.
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      watcher.unobserve(entry.target);
      first(entry.target);
    }
  }, { rootMargin: "600px" });
  // Room for each as high as it will be: nothing jumps, and none has a gap below it.
  for (const place of places) {
    const { height } = figures[place.dataset.figure].layout;
    if (height) place.style.minHeight = `${height}px`;
    watcher.observe(place);
  }
  dark.addEventListener("change", drawAll);
  const all = () => places.forEach((p) => (p.dataset.drawn ? draw(p) : first(p)));
  window.addEventListener("beforeprint", () => { printing = true; all(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
})();
