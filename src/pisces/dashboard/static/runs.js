// The list of runs.

import { compareLink, runLink } from "./address.js";
import { el, refill, say } from "./elements.js";
import { now } from "./net.js";
import { bar, code, nothing, reading, stateBadge } from "./parts.js";
import { Table } from "./table.js";
import { ago, duration, metric, number, percent, reason, state, STATES, timeLeft, UNKNOWN } from "./words.js";

const asked = { order: "changed_at", descending: "1", first: 0 };
const chosen = new Set();

export function runsPage({ wake }) {
  const title = el("h1", {}, "Runs");
  const words = el("p", { class: "words" });
  const blank = el("div", { hidden: true });
  const compare = el("a", { class: "button main push", href: "#/compare" });
  const table = new Table({
    label: "Runs", asked, changed: wake, columns: columns(showChosen),
    search: "Find a run", extra: [compare],
    filter: { key: "state", label: "State", options: Object.entries(STATES).map(([name, [, word]]) => [name, word]) },
  });
  const element = el("div", {}, el("div", { class: "head" }, title, words), blank, table.element);

  function showChosen() {
    compare.setAttribute("href", compareLink([...chosen]));
    say(compare, chosen.size ? `Compare ${chosen.size} ${chosen.size === 1 ? "run" : "runs"}` : "Compare runs");
  }

  async function update(ask) {
    const answer = await ask("runs", asked);
    this.title = answer.folder;
    say(words, sentence(answer));
    table.element.hidden = answer.total === 0;
    blank.hidden = answer.total > 0;
    if (!blank.hidden) refill(blank, `${answer.folder} ${answer.has_looked}`, () => emptiness(answer));
    table.show(answer, "No run fits: change the words or the state.");
    table.body.querySelectorAll("[data-at]").forEach(tellAge); // whether or not anything has changed
  }

  showChosen();
  return { element, update, title: "Runs" };
}

function sentence({ folder, total, states, is_cut: isCut, has_looked: hasLooked }) {
  if (!hasLooked) return `Looking for runs in ${folder} …`;
  if (!total) return "";
  const parts = Object.entries(states).filter(([, num]) => num).map(([name, num]) => `${num} ${state(name)[1]}`);
  const cut = isCut ? " There are more than can be shown: watch a folder further down." : "";
  return `In ${folder}: ${number(total)} ${total === 1 ? "run" : "runs"}${parts.length ? ` (${parts.join(", ")})` : ""}.${cut}`;
}

function emptiness({ folder, has_looked: hasLooked }) {
  if (!hasLooked) return el("p", { class: "empty" }, "Looking …");
  return nothing(`No runs in ${folder} yet.`,
    el("span", {}, "Start one in another terminal, it appears here by itself: ", code(`pisces run my.toml --out ${folder}/first`), "."),
    el("span", {}, "If your runs are elsewhere: ", code("pisces watch FOLDER"), "."));
}

function columns(choose) {
  return [
    { key: "id", label: "Run", class: "name", cell: runCell },
    { key: "state", label: "State", cell: (row) => stateBadge(row.state, isHurt(row) ? "log damaged" : "") },
    { key: "share_done", label: "Progress", cell: progress },
    { key: "value", label: "Value", title: "The metric of the run, as last evaluated", num: true, cell: (row) => [metric(row.value, row.target), el("span", { class: "sub" }, row.metric ?? "")] },
    { key: "best", label: "Best", num: true, cell: (row) => metric(row.best, row.target) },
    { key: "time_to_target_s", label: "To target", title: "When the target was first met, in the run's own time", num: true, cell: toTarget },
    { key: "version", label: "Versions", num: true },
    { key: "num_updates", label: "Updates", num: true },
    { key: "num_clients", label: "Clients", num: true },
    { key: "changed_at", label: "Last line", num: true, cell: (row) => el("span", { "data-at": row.changed_at }) },
    { key: "compare", label: "Compare", fixed: true, cell: (row) => box(row.id, choose) },
  ];
}

function runCell(row) {
  const name = row.name && row.name !== row.id ? el("span", { class: "sub" }, row.name) : null;
  return [el("a", { href: runLink(row.id), "data-key": row.id }, row.id === "." ? (row.name ?? "this run") : row.id), name];
}

/** Does its state not say that already? */
function isHurt({ state: name, problem }) {
  return problem && name !== "damaged" && name !== "sampled";
}

function progress(row) {
  if (row.state === "sampled") return "not shown";
  if (row.state === "damaged") return UNKNOWN;
  if (row.share_read < 1 && !row.problem) return reading(row.share_read);
  if (row.state === "finished") return reason(row.reason);
  const left = timeLeft(row);
  return bar(row.share_done, `${percent(row.share_done)}${left && `, ${left} left`}`, "Share of the run that is done");
}

function toTarget(row) {
  if (row.target === null || row.target === undefined) return UNKNOWN;
  if (row.state === "damaged" && row.time_to_target_s === null) return UNKNOWN;
  return row.time_to_target_s !== null ? duration(row.time_to_target_s) : row.state === "finished" ? "not reached" : "not yet";
}

function tellAge(element) {
  say(element, ago(now() - Number(element.dataset.at)));
}

function box(run, choose) {
  const change = (event) => {
    if (event.target.checked) chosen.add(run);
    else chosen.delete(run);
    choose();
  };
  return el("input", { type: "checkbox", checked: chosen.has(run), "aria-label": `Compare ${run}`, "data-key": `box ${run}`, on: { change } });
}
