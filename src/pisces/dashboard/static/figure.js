// Figures: drawn by the charts' own script, with their words beside them.
// How they look is told by a script before this one: `LOOK`, which reports have too.

import { el, say } from "./elements.js";

const shown = new Set();
let look = null; // until the colours change

let plotly = null; // until its script is there; nobody waits for it, but then all figures are drawn
let problem = "";

function begin() {
  plotly = window.Plotly;
  plotly.setPlotConfig({ ...LOOK.config, displayModeBar: false });
  redraw();
}

function fail() {
  if (plotly) return;
  problem = " (The charts could not be loaded: load the page again.)";
  redraw();
}

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
    this.plot.setAttribute("aria-label", `${figure.title}. ${figure.words}`);
    await this.draw();
  }

  async draw() {
    if (!this.figure) return;
    const isEmpty = this.figure.data.length === 0;
    this.plot.hidden = isEmpty || problem !== "";
    say(this.words, this.figure.words + (isEmpty ? "" : problem));
    if (!plotly || isEmpty || !this.plot.isConnected) return;
    const { data, layout } = drawable(this.figure, this.span, this.plot.clientWidth);
    this.plot.classList.toggle("has-height", Boolean(layout.height));
    await plotly.react(this.plot, data, layout);
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
    if (this.isDrawn) plotly.purge(this.plot);
  }
}

/** Draw all figures again: the colours of the page have changed. */
export function redraw() {
  look = null;
  for (const picture of shown) picture.draw();
}

// The charts take a little markup. Names out of logs come escaped; whatever else there may be, no
// tag goes through but these, none of which leads anywhere.
const TAG = /<(?!\/?(?:br|b|i|sub|sup|extra)>)/g;

function harmless(value) {
  if (typeof value === "string") return (look.isDark && LOOK.onDark[value]) || value.replace(TAG, "&lt;");
  if (Array.isArray(value)) return value.map(harmless);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, harmless(part)]));
}

function drawable(figure, span, width) {
  look ??= looked();
  const copy = harmless({ data: figure.data, layout: figure.layout });
  const layout = copy.layout;
  layout.template = look.template;
  layout.uirevision = span ? String(span) : "all";
  layout.autosize = true;
  layout.margin = { l: 8, r: 8, t: 8, b: 8 }; // axes make room for what they say
  if (width < LOOK.narrow) copy.data.forEach(layScaleBelow);
  if (span) layout.xaxis = { ...layout.xaxis, range: span, autorange: false };
  return copy;
}

/** Beside a narrow figure there is no room for the scale of its colours. */
function layScaleBelow(trace) {
  for (const holder of [trace, trace.marker]) {
    if (!holder?.colorbar) continue;
    const text = String(holder.colorbar.title?.text ?? "").replace("<br>", " ");
    holder.colorbar = { ...holder.colorbar, title: { text, side: "top" }, orientation: "h", thickness: 8,
      x: 0.5, xanchor: "center", len: 0.9, yref: "container", y: 0, yanchor: "bottom" };
  }
}

/** The page's colours as the charts take them; reading them makes the browser lay the page out. */
function looked() {
  const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--card"].map(colour);
  const isDark = Math.max(...paper.match(/\d+/g).map(Number)) < 128;
  return { isDark, template: LOOK.template({ ink, soft, grid, paper }) };
}

function colour(name) {
  const probe = el("span", { hidden: true });
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// It comes whenever it likes, or fails before we are here: but the page has loaded only after either.
if (window.Plotly) begin();
else document.getElementById("charts").addEventListener("load", begin);
addEventListener("load", fail);
