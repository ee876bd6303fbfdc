// All clients: who worked when, and what is known of each.

import { clientColumns, noClients, STATUS_FILTER } from "./columns.js";
import { el, say } from "./elements.js";
import { Picture } from "./figure.js";
import { Choice } from "./parts.js";
import { Table } from "./table.js";
import { duration, number, titled } from "./words.js";

const ROWS = 40; // clients in the timeline at once
const COLOURS = ["staleness", "outcome"];
const BY_ID = { order: "client", descending: "0", first: 0 };
const kept = new Map(); // what each run's table was last asked for

export function clientsTab({ run, wake }) {
  const asked = kept.get(run) ?? { ...BY_ID };
  kept.set(run, asked);
  const view = { colour: "staleness", first: 0, span: null };
  const table = new Table({
    label: "Clients", asked, changed: wake, columns: columns(run), search: "Find a client", filter: STATUS_FILTER,
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

  function button(label, words, click) {
    return el("button", { type: "button", class: "button", "aria-label": words, title: words, on: { click } }, label);
  }

  const colour = new Choice("Colour by", (name) => change({ colour: name }));
  colour.offer(COLOURS.map((name) => [name, name]), view.colour);
  const all = button("All", "Show all the time", () => change({ span: null }));
  const before = button("‹", "Clients before these", () => change({ first: Math.max(0, view.first - ROWS) }));
  const behind = button("›", "Clients behind these", () => change({ first: view.first + ROWS }));
  const pages = el("span", { class: "group", role: "group", "aria-label": "Clients shown" }, before, behind);
  const place = el("span", { class: "note" });
  const controls = el("div", { class: "controls" }, colour.element,
    el("span", { class: "group", role: "group", "aria-label": "Zoom" },
      button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)),
      button("‹", "Earlier", () => zoom(1, -0.5)), button("›", "Later", () => zoom(1, 0.5)), all),
    pages, place);
  const picture = new Picture({ controls, onZoom: (span) => change({ span }) });

  function showControls() {
    const last = Math.min(view.first + ROWS, total);
    all.disabled = view.span === null;
    pages.hidden = place.hidden = total <= ROWS;
    before.disabled = view.first === 0;
    behind.disabled = last >= total;
    say(place, `${number(view.first + 1)} to ${number(last)} of ${number(total)} clients that ever worked`);
  }

  async function update(ask, glance) {
    [end, total] = [glance.at, glance.num_worked];
    showControls();
    const { span } = view;
    const [from, until] = span ?? [null, null];
    const wanted = { run, name: "timeline", colour: view.colour, first: view.first, num: ROWS, from, until };
    const shown = (rows) => {
      table.setColumns(columns(run, rows.terms), rows.terms.join());
      table.show(rows, noClients(rows));
    };
    const refused = (error) => { // a run that came in this one's place may have no such term
      if (error.status === 400) table.ask(BY_ID);
      throw error;
    };
    await Promise.all([
      ask("clients", { run, ...asked }).then(shown, refused),
      ask("figure", wanted).then((figure) => picture.show(figure, span)),
    ]);
  }

  return {
    element: el("div", { class: "stack" }, picture.element,
      el("section", { "aria-label": "Table of clients" }, el("h2", {}, "Every client"), table.element)),
    update, close: () => picture.close(),
  };
}

/** `terms` are what scores are made of, the score itself last: each selector has its own. */
function columns(run, terms = []) {
  return [
    ...clientColumns(run),
    { key: "num_examples", label: "Size", title: "Examples it has", num: true },
    { key: "latency_s", label: "Latency", title: "How long its last task took", num: true, cell: (row) => duration(row.latency_s) },
    { key: "loss", label: "Last loss", title: "As it told it; where it is doubted, the usual loss may be scored in its place", num: true },
    { key: "staleness", label: "Staleness", title: "Of its last aggregated update", num: true },
    ...terms.filter((term) => term !== "score").map((term) => (
      { key: term, label: titled(term), title: "Part of its score, as last recorded; where its loss is doubted, with the usual loss", num: true, cell: (row) => number(row.terms[term]) })),
    { key: "score", label: "Score", title: "By which it is picked, as last recorded; of a distrusted client it does not count", num: true },
    { key: "picks", label: "Picks", num: true },
    { key: "updates", label: "Updates", num: true },
    { key: "failures", label: "Failures", num: true },
    { key: "credits", label: "Credits", title: "Left before it is distrusted", num: true },
  ];
}
