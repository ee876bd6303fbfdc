// All clients: who worked when, and what is known of each.

import { el, fill } from "./elements.js";
import { Picture } from "./figure.js";
import { ask } from "./net.js";
import { choice, statusBadge } from "./parts.js";
import { runLink } from "./runs.js";
import { Table } from "./table.js";
import { duration, number, titled } from "./words.js";

const ROWS = 40; // clients in the timeline at once
const kept = new Map(); // what each run's table was last asked for

export function clientsTab({ run, wake }) {
  const asked = kept.get(run) ?? { order: "client", descending: "0", first: 0 };
  kept.set(run, asked);
  const view = { colour: "staleness", first: 0, span: null };
  const controls = el("div", { class: "controls" });
  const picture = new Picture({ controls, onZoom: (span) => { view.span = span; wake(); } });
  const table = new Table({
    label: "Clients", asked, changed: wake, columns: columns(run), search: "Find a client",
    filter: { key: "status", label: "Status", options: ["running", "waiting", "idle", "new", "gone", "distrusted"] },
  });
  let end = 0;
  let total = 0;

  function change(part) {
    Object.assign(view, part);
    wake();
  }

  /** Zoom by a factor, or move by a share of what is shown. */
  function zoom(factor, shift = 0) {
    const [from, until] = view.span ?? [0, end];
    const middle = (from + until) / 2 + shift * (until - from);
    const half = Math.max(((until - from) * factor) / 2, 1e-6);
    const isAll = middle - half <= 0 && middle + half >= end;
    change({ span: isAll ? null : [middle - half, middle + half] });
  }

  function button(label, words, click, key, disabled = false) {
    return el("button", { type: "button", class: "button", "aria-label": words, title: words, "data-key": key, disabled, on: { click } }, label);
  }

  function showControls() {
    const last = Math.min(view.first + ROWS, total);
    fill(controls,
      choice("Colour by", [["staleness", "staleness"], ["outcome", "outcome"]], view.colour, (colour) => change({ colour })),
      el("span", { class: "group", role: "group", "aria-label": "Zoom" },
        button("−", "Zoom out", () => zoom(2), "out"), button("+", "Zoom in", () => zoom(0.5), "in"),
        button("‹", "Earlier", () => zoom(1, -0.5), "earlier"), button("›", "Later", () => zoom(1, 0.5), "later"),
        button("All", "Show all the time", () => change({ span: null }), "all", view.span === null)),
      total > ROWS ? el("span", { class: "group", role: "group", "aria-label": "Clients shown" },
        button("‹", "Clients before these", () => change({ first: Math.max(0, view.first - ROWS) }), "before", view.first === 0),
        button("›", "Clients behind these", () => change({ first: view.first + ROWS }), "behind", last >= total)) : null,
      total > ROWS ? el("span", { class: "note" }, `${number(view.first + 1)} to ${number(last)} of ${number(total)} clients`) : null);
  }

  async function update(glance) {
    [end, total] = [glance.at, glance.num_clients];
    const key = [view.colour, view.span, view.first, total].join(" ");
    if (controls.dataset.shown !== key) {
      showControls();
      controls.dataset.shown = key;
    }
    const [from, until] = view.span ?? [null, null];
    const wanted = { run, name: "timeline", colour: view.colour, first: view.first, num: ROWS, from, until };
    const shown = (rows) => {
      table.setColumns(columns(run, rows.terms), rows.terms.join());
      return table.show(rows, rows.total ? "No client fits: change the words or the status." : "No client has joined yet.");
    };
    await Promise.all([
      ask("clients", { run, ...asked }).then(shown),
      ask("figure", wanted).then((figure) => picture.show(figure, view.span)),
    ]);
  }

  return {
    element: el("div", { class: "stack" }, picture.element,
      el("section", { "aria-label": "Table of clients" }, el("h2", {}, "Every client"), table.element)),
    update, close: () => picture.close(),
  };
}

export function clientLink(run, client) {
  return `${runLink(run, "clients")}/${client}`;
}

/** `terms` are what scores are made of, the score itself last: each selector has its own. */
function columns(run, terms = []) {
  return [
    { key: "client", label: "Client", class: "name", cell: (row) => [
      el("a", { href: clientLink(run, row.client), "data-key": `client ${row.client}` }, String(row.client)),
      row.name ? el("span", { class: "sub" }, row.name) : null] },
    { key: "status", label: "Status", cell: (row) => statusBadge(row.status) },
    { key: "num_examples", label: "Size", title: "Examples it has", num: true },
    { key: "latency_s", label: "Latency", title: "How long its last task took", num: true, cell: (row) => duration(row.latency_s) },
    { key: "loss", label: "Last loss", title: "As it told it; where it is doubted, the usual loss may be scored in its place", num: true },
    { key: "staleness", label: "Staleness", title: "Of its last aggregated update", num: true },
    ...terms.filter((term) => term !== "score").map((term) => (
      { key: term, label: titled(term), title: "Part of its score, as last recorded; where its loss is doubted, with the usual loss", num: true, cell: (row) => number(row.terms[term]) })),
    { key: "score", label: "Score", title: "By which it is picked, as last recorded", num: true },
    { key: "picks", label: "Picks", num: true },
    { key: "updates", label: "Updates", num: true },
    { key: "failures", label: "Failures", num: true },
    { key: "credits", label: "Credits", title: "Left before it is distrusted", num: true },
  ];
}
