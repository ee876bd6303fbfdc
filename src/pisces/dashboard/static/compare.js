// Several runs side by side.

import { compareLink, runLink } from "./address.js";
import { el, fill, refill, say } from "./elements.js";
import { Picture } from "./figure.js";
import { Choice, nothing, reading } from "./parts.js";
import { Table } from "./table.js";
import { bytes, capital, duration, number } from "./words.js";

const MOST = 40; // runs at once, as the server has it
const SHOWN = { seconds: duration, bytes, number }; // by the unit of what runs cost

export function comparePage({ query }) {
  const chosen = [...new Set(query.getAll("run"))];
  const runs = chosen.slice(0, MOST);
  const wish = { target: query.get("target") ?? "", metric: query.get("metric") ?? "" };
  const pictures = [new Picture(), new Picture(), new Picture()];
  const [curves, times, speedups] = pictures.map((picture) => picture.element);
  const costs = new Table({ label: "Costs", columns: [], asked: { num: MOST } });
  const blank = el("div", {});
  const waiting = el("div", {});
  const missing = el("div", { class: "problems" });
  const content = el("div", { class: "stack", hidden: true }, curves, el("div", { class: "pair" }, times, speedups),
    el("section", { "aria-label": "Costs" }, el("h2", {}, "What they cost"), costs.element));
  let free = [];
  let seen = null;

  function go(names, wanted = wish) {
    location.hash = compareLink(names, wanted);
  }

  function chip(name) {
    return el("li", {}, el("a", { href: runLink(name) }, name),
      el("button", { type: "button", "aria-label": `Take ${name} out`, on: { click: () => go(runs.filter((run) => run !== name)) } }, "×"));
  }

  // Made once: whoever types or chooses is not disturbed by a run that appears.
  const add = new Choice("Add a run", (name) => name && go([...runs, name]));
  const addAll = el("button", { type: "button", class: "button", hidden: true, on: { click: () => go([...runs, ...free]) } }, "Add all");
  const target = el("label", { hidden: runs.length === 0 }, "Target", el("input", { type: "number", step: "any", value: wish.target,
    placeholder: "their own", on: { change: (event) => go(runs, { ...wish, target: event.target.value }) } }));
  const metric = new Choice("Metric", (name) => go(runs, { ...wish, metric: name }));

  function offer(all) {
    free = all.filter((name) => !runs.includes(name));
    const isFull = runs.length >= MOST;
    add.offer(isFull ? [] : [["", "choose …"], ...free.map((name) => [name, name])], "");
    addAll.hidden = free.length < 2 || runs.length + free.length > MOST;
  }

  async function update(ask) {
    const all = await ask("names");
    offer(all.runs);
    if (runs.length === 0) {
      refill(blank, all.runs.length ? "" : all.folder, () => all.runs.length
        ? nothing("No runs are chosen.", "Add them here, or tick them in the list of runs.")
        : nothing(`No runs in ${all.folder} yet.`, "They appear here by themselves: pisces compare makes several."));
      return;
    }
    const answer = await ask("compare", { run: runs, ...wish });
    if (answer === seen) return;
    seen = answer;
    content.hidden = false;
    metric.offer(answer.metrics.length > 1 ? [["", "their own"], ...answer.metrics.map((name) => [name, name])] : [], wish.metric);
    const share = answer.runs.reduce((sum, run) => sum + run.share_read, 0) / answer.runs.length;
    fill(waiting, share < 1 ? reading(share) : null);
    const notes = answer.left_out.map(({ id, why }) => `${id} is left out: ${why}.`);
    notes.push(...answer.notes.map((note) => `${capital(note)}.`));
    fill(missing, notes.map((words) => el("p", { class: "problem", role: "status" }, words)));
    costs.setColumns(columns(answer.quantities), "costs");
    costs.show({ rows: answer.costs, found: answer.costs.length, first: 0 }, "");
    pictures.forEach((picture, i) => { picture.element.hidden = i >= answer.figures.length; });
    await Promise.all(answer.figures.map((figure, i) => pictures[i].show(figure)));
  }

  const words = el("p", { class: "words" }, runs.length ? "Times are each run's own; speed-ups are paired by seed." : "");
  const rest = el("p", { class: "note", hidden: chosen.length <= MOST },
    `At most ${MOST} runs are compared at once: of those chosen the last ${number(chosen.length - MOST)} are left out.`);
  const chips = el("ul", { class: "chips", "aria-label": "Runs compared" }, runs.map(chip));
  const controls = el("div", { class: "controls" }, add.element, addAll, target, metric.element);
  const element = el("div", {}, el("div", { class: "head" }, el("h1", {}, "Compare"), words, rest), chips, controls, blank, missing, waiting, content);
  return { element, update, title: "Compare", close: () => pictures.forEach((picture) => picture.close()) };
}

function columns(quantities) {
  return [
    { key: "run", label: "Run", class: "name", fixed: true, cell: (row) => el("a", { href: runLink(row.run), "data-key": row.run }, row.run) },
    { key: "protocol", label: "Protocol", fixed: true },
    { key: "seed", label: "Seed", num: true, fixed: true },
    { key: "reason", label: "Ended by", fixed: true },
    ...quantities.map(({ key, label, unit }) => (
      { key, label: capital(label), num: true, fixed: true, cell: (row) => SHOWN[unit](row[key]) })),
  ];
}
