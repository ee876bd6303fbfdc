"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  // Paper is white, whatever the screen; the print styles count only after `beforeprint`.
  const printed = { "--ink": "#000", "--soft": "#444", "--grid": "#ddd", "--paper": "#fff" };
  let printing = false;
  const css = (name) => printing ? printed[name]
    : getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const theme = () => {
    const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--paper"].map(css);
    return LOOK.template({ ink, soft, grid, paper });
  };
  const seen = (data) => dark.matches && !printing
    ? JSON.parse(JSON.stringify(data), (_, value) => LOOK.onDark[value] ?? value) : data;
  Plotly.setPlotConfig(LOOK.config);
  const draw = (place) => {
    const { data, layout } = figures[place.dataset.figure];
    const displayModeBar = place.clientWidth < LOOK.narrow ? false : "hover";
    return Plotly.react(place, seen(data), { ...layout, template: theme() }, { displayModeBar });
  };
  const places = [...document.querySelectorAll("[data-figure]")];
  const drawAll = () => places.filter((p) => p.dataset.drawn).forEach(draw);
  const first = (place) => {
    place.dataset.drawn = "yes";
    place.textContent = "";
    draw(place);
  };
  // What is looked at comes first, so that a page of many figures opens at once.
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
  // The rest follows while nothing else is to be done: for pictures of the whole page, and who scrolls fast.
  const idle = window.requestIdleCallback ?? ((next) => setTimeout(next, 50));
  const drawRest = () => {
    const next = places.find((place) => !place.dataset.drawn);
    if (!next) return;
    watcher.unobserve(next);
    first(next);
    idle(drawRest);
  };
  idle(drawRest);
  dark.addEventListener("change", drawAll);
  const all = () => places.forEach((p) => (p.dataset.drawn ? draw(p) : first(p)));
  let opened = []; // nobody can open on paper what is closed
  window.addEventListener("beforeprint", () => {
    printing = true;
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const closed of opened) closed.open = true;
    all();
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    for (const own of opened) own.open = false;
    drawAll();
  });
})();
