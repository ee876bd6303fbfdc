// Figures: drawn by the charts' own script, in the colours of the page, with their words beside them.

import { el, say } from "./elements.js";

const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';
const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false, showTips: false };
const shown = new Set();

const charts = new Promise((resolve, reject) => {
  const script = document.getElementById("charts");
  if (window.Plotly) resolve(window.Plotly);
  script.addEventListener("load", () => resolve(window.Plotly));
  script.addEventListener("error", () => reject(new Error("the charts could not be loaded")));
});
charts.catch(() => {}); // said where a figure would be

/** One figure, drawn again whenever it is shown something else. */
export class Picture {
  constructor({ controls = null, onZoom = null } = {}) {
    this.title = el("h2");
    this.words = el("p", { class: "words" });
    this.plot = el("div", { class: "plot", role: "img" });
    this.element = el("figure", { class: "card" },
      el("figcaption", {}, el("div", { class: "card-head" }, this.title), this.words), controls, this.plot);
    this.onZoom = onZoom;
    this.figure = null;
    this.span = null;
    this.isDrawn = false;
    shown.add(this);
  }

  /** Show a figure; `span` is what part of the horizontal axis to show, if not all. */
  async show(figure, span = null) {
    if (figure === this.figure && String(span) === String(this.span)) return;
    this.figure = figure;
    this.span = span;
    say(this.title, figure.title);
    say(this.words, figure.words);
    this.plot.setAttribute("aria-label", `${figure.title}. ${figure.words}`);
    this.plot.hidden = figure.data.length === 0;
    if (figure.data.length) await this.draw();
  }

  async draw() {
    if (!this.figure?.data.length) return;
    let plotly;
    try {
      plotly = await charts;
    } catch (error) {
      say(this.words, `${this.figure.words} (${error.message}: load the page again.)`);
      return;
    }
    const { data, layout } = drawable(this.figure, this.span, this.plot.clientWidth);
    this.plot.classList.toggle("has-height", Boolean(layout.height));
    if (this.figure && this.plot.isConnected) await plotly.react(this.plot, data, layout, CONFIG);
    if (!this.isDrawn && this.plot.on) {
      this.isDrawn = true;
      this.plot.on("plotly_relayout", (change) => this.zoomed(change));
    }
  }

  zoomed(change) {
    if (!this.onZoom) return;
    const range = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
    if (change["xaxis.autorange"]) this.onZoom(null);
    else if (range[0] !== undefined && range[1] !== undefined) this.onZoom(range.map(Number));
  }

  close() {
    shown.delete(this);
    if (this.isDrawn && window.Plotly) window.Plotly.purge(this.plot);
  }
}

/** Draw all figures again: the colours of the page have changed. */
export function redraw() {
  for (const picture of shown) picture.draw();
}

function drawable(figure, span, width) {
  const copy = structuredClone({ data: figure.data, layout: figure.layout });
  const layout = copy.layout;
  layout.template = template(width);
  layout.uirevision = span ? String(span) : "all";
  layout.autosize = true;
  delete layout.title;
  if (span) layout.xaxis = { ...layout.xaxis, range: span, autorange: false };
  return copy;
}

/** The page's colours and type as the charts take them. */
function template(width) {
  const [ink, soft, grid, card, line] = ["--ink", "--soft", "--grid", "--card", "--line"].map(colour);
  const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: line, tickcolor: line, automargin: true,
    title: { font: { color: soft, size: 12 }, standoff: 8 }, tickfont: { color: soft, size: 11 } };
  return { layout: {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 12, color: ink },
    xaxis: axis, yaxis: axis,
    margin: { l: width < 500 ? 40 : 56, r: 12, t: 12, b: 40 },
    hoverlabel: { bgcolor: card, bordercolor: line, font: { color: ink, family: FONT, size: 12 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: soft, size: 12 } },
    transition: { duration: 0 },
  } };
}

function colour(name) {
  const probe = el("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
