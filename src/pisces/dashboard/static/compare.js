// Several runs side by side.

import { el, fill, say } from "./elements.js";
import { Picture } from "./figure.js";
import { ask } from "./net.js";
import { choice, nothing, reading } from "./parts.js";
import { runLink } from "./runs.js";
import { plainTable } from "./table.js";
import { bytes, duration, number } from "./words.js";

const MOST = 40; // runs at once, as the server has it

export function comparePage({ query, wake }) {
  const runs = query.getAll("run").slice(0, MOST);
  const wish = { target: query.get("target") ?? "", metric: query.get("metric") ?? "" };
  const words = el("p", { class: "words" });
  const chips = el("ul", { class: "chips", "aria-label": "Runs compared" });
  const controls = el("div", { class: "controls" });
  const pictures = [new Picture(), new Picture(), new Picture()];
  const [curves, times, speedups] = pictures.map((picture) => picture.element);
  const costs = el("section", { "aria-label": "Costs" });
  const waiting = el("div", {});
  const missing = el("div", {});
  const content = el("div", { class: "stack", hidden: true }, curves, el("div", { class: "pair" }, times, speedups), costs);
  const blank = el("div", {});
  let seen = null;
  let offered = "";

  function go(names, wanted = wish) {
    const next = new URLSearchParams(names.map((name) => ["run", name]));
    for (const [key, value] of Object.entries(wanted)) if (value !== "") next.set(key, value);
    location.hash = `#/compare?${next}`;
  }

  function chip(name) {
    return el("li", {}, el("a", { href: runLink(name) }, name),
      el("button", { type: "button", "aria-label": `Take ${name} out`, on: { click: () => go(runs.filter((run) => run !== name)) } }, "×"));
  }

  function offer(all) {
    const free = all.rows.map((row) => row.id).filter((id) => !runs.includes(id));
    if (offered === free.join("\n") && controls.childElementCount) return;
    offered = free.join("\n");
    const metrics = [...new Set(all.rows.map((row) => row.metric).filter(Boolean))];
    fill(controls,
      free.length ? choice("Add a run", [["", "choose …"], ...free.map((id) => [id, id])], "", (id) => id && go([...runs, id])) : null,
      free.length > 1 && all.total <= MOST ? el("button", { type: "button", class: "button", on: { click: () => go([...runs, ...free]) } }, "Add all") : null,
      runs.length ? el("label", {}, "Target", el("input", { type: "number", step: "any", value: wish.target, placeholder: "their own",
        on: { change: (event) => go(runs, { ...wish, target: event.target.value }) } })) : null,
      runs.length && metrics.length > 1 ? choice("Metric", [["", "their own"], ...metrics.map((name) => [name, name])], wish.metric,
        (metric) => go(runs, { ...wish, metric })) : null);
  }

  async function update() {
    const all = await ask("runs", { order: "id", num: 200 });
    offer(all);
    if (runs.length === 0) {
      fill(blank, all.total
        ? nothing("No runs are chosen.", "Add them here, or tick them in the list of runs.")
        : nothing(`No runs in ${all.folder} yet.`, "They appear here by themselves: pisces compare makes several."));
      return;
    }
    const answer = await ask("compare", { run: runs, ...wish });
    if (answer === seen) return;
    seen = answer;
    content.hidden = false;
    const share = answer.runs.reduce((sum, run) => sum + run.share_read, 0) / answer.runs.length;
    fill(waiting, share < 1 ? reading(share) : null);
    fill(missing, answer.left_out.map(({ id, why }) => el("p", { class: "problem", role: "status" }, `${id} is left out: ${why}.`)));
    fill(costs, el("h2", {}, "What they cost"), plainTable("Costs", columns(answer.costs), answer.costs));
    await Promise.all(answer.figures.map((figure, i) => pictures[i].show(figure)));
  }

  fill(chips, runs.map(chip));
  say(words, runs.length ? "Times are each run's own; speed-ups are paired by seed." : "");
  const element = el("div", {}, el("div", { class: "head" }, el("h1", {}, "Compare"), words), chips, controls, blank, missing, waiting, content);
  return { element, update, title: "Compare", close: () => pictures.forEach((picture) => picture.close()) };
}

function columns(rows) {
  const keys = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((key) => !["run", "name"].includes(key));
  const isNumber = (key) => rows.every((row) => row[key] === null || typeof row[key] === "number");
  return [
    { key: "run", label: "Run", class: "name", cell: (row) => el("a", { href: runLink(row.run) }, row.run) },
    ...keys.map((key) => ({ key, label: heading(key), num: isNumber(key), cell: (row) => shown(key, row[key]) })),
  ];
}

function shown(key, value) {
  if (key.endsWith("bytes")) return bytes(value);
  return key.endsWith("_s") ? duration(value) : number(value);
}

function heading(key) {
  const words = key.replace(/^num_/, "").replace(/_(s|bytes)$/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}
