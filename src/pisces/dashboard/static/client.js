// One client: what it did, and why it was picked or not.

import { runLink } from "./address.js";
import { el, fill, say } from "./elements.js";
import { badge, Tiles } from "./parts.js";
import { Table } from "./table.js";
import { counted, duration, FATES, instant, number, OUTCOMES, STATUSES, UNKNOWN } from "./words.js";

export function clientTab({ run, client, wake }) {
  const title = el("h2", {}, `Client ${client}`);
  const status = el("span", {});
  const tiles = new Tiles(true);
  const why = el("p", { class: "note" });
  const doubts = el("p", { class: "note" });
  const fates = el("p", { class: "words" });
  const asked = { first: 0, num: 20 };
  const askedTasks = { first: 0, num: 20 };
  const decisions = new Table({ label: "Decisions", asked, changed: wake, columns: DECISIONS,
    filter: { key: "fate", label: "Fate", options: Object.keys(FATES).map((fate) => [fate, fate]) },
    extra: [el("label", {}, "Up to second", el("input", { type: "number", step: "any", on: { change: (event) => decisions.change({ until: event.target.value, first: 0 }) } }))] });
  const tasks = new Table({ label: "Tasks", asked: askedTasks, changed: wake, columns: TASKS });
  let seen = null;

  async function update(ask) {
    const story = await ask("client", { run, client, ...asked, first_task: askedTasks.first });
    if (story === seen) return;
    seen = story;
    content.hidden = false;
    const { facts } = story;
    say(title, facts.name ? `Client ${client}: ${facts.name}` : `Client ${client}`);
    fill(status, badge(STATUSES[facts.status], facts.status));
    tiles.show(known(story));
    say(why, story.note ?? "");
    why.hidden = !story.note;
    say(doubts, doubtWords(story));
    doubts.hidden = !story.num_outliers;
    say(fates, fateWords(story.fates));
    decisions.element.hidden = fates.hidden = Object.values(story.fates).every((num) => num === 0);
    decisions.show({ rows: story.decisions, found: story.num_decisions, first: story.first }, "None such: choose another fate, or a later second.");
    tasks.show({ rows: story.tasks, found: story.num_tasks, first: story.first_task }, "It has not been started yet.");
  }

  const content = el("div", { class: "stack", hidden: true }, tiles.element, doubts,
    el("section", { "aria-label": "Why it was picked or not" }, el("h2", {}, "Why it was picked, or not"),
      el("p", { class: "words" }, "Newest first: each decision, and the terms of its score then."), fates, why, decisions.element),
    el("section", { "aria-label": "Its tasks" }, el("h2", {}, "Its tasks"), tasks.element));
  const element = el("div", { class: "stack" },
    el("div", { class: "head" }, el("p", { class: "path" }, el("a", { href: runLink(run, "clients") }, "All clients")),
      el("div", { class: "line" }, title, status)),
    content);
  return { element, update, title: `Client ${client}` };
}

function fateWords(fates) {
  const parts = Object.entries(fates).filter(([, num]) => num).map(([fate, num]) => `${fate} ${number(num)}`);
  return `Of ${counted(Object.values(fates).reduce((sum, num) => sum + num, 0), "decision")}: ${parts.join(", ")}.`;
}

function doubtWords({ num_outliers: num, is_doubted: isDoubted }) {
  const times = `${counted(num, "of its updates was an outlier", "of its updates were outliers")}.`;
  return isDoubted ? `Doubted: its last update was taken for an outlier and dropped. A judge by learning then scores it with the usual loss, not its own, so its score may not match its last loss. ${times}` : times;
}

/** What came of its tasks: numbers that add up to its picks. */
function outcomeWords({ running, waiting, aggregated, dropped, failed, left, "called off": calledOff, "cut off": cutOff }) {
  const updates = waiting + aggregated + dropped;
  const parts = [[failed, counted(failed, "failure")], [calledOff, `${number(calledOff)} called off`], [left, `${number(left)} left`],
    [cutOff, `${number(cutOff)} cut off by the end`], [running, `${number(running)} running`]];
  return [counted(updates, "update"), ...parts.filter(([num]) => num).map(([, words]) => words)].join(", ");
}

function known({ facts, outcomes, joined_at: joined, distrusted_at: distrusted }) {
  return [
    ["Size", number(facts.num_examples), "examples"],
    ["Latency", duration(facts.latency_s), "of its last task"],
    ["Last loss", number(facts.loss), facts.version === null ? "" : `from version ${number(facts.version)}`],
    ["Score", number(facts.score), distrusted === null ? terms(facts.terms) : "does not count: distrusted"],
    ["Picks", number(facts.picks), outcomeWords(outcomes)],
    ["Credits", number(facts.credits), distrusted === null ? "" : `distrusted at ${instant(distrusted)}`],
    ["Joined", joined === null ? UNKNOWN : duration(joined), "after the run began"],
  ];
}

function terms(values) {
  return Object.entries(values).filter(([name]) => name !== "score").map(([name, value]) => `${name} ${number(value)}`).join(", ");
}

function termCell(row) {
  const parts = Object.entries(row.terms ?? {});
  if (!parts.length) return UNKNOWN;
  return el("span", { class: "terms" }, parts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, number(value)))));
}

const DECISIONS = [
  { key: "at", label: "At", num: true, fixed: true, cell: (row) => instant(row.at) },
  { key: "fate", label: "Fate", fixed: true, cell: (row) => badge(FATES[row.fate], row.fate) },
  { key: "why", label: "Why", fixed: true, class: "wide", cell: (row) => row.why },
  { key: "terms", label: "Terms of its score", title: "As last recorded by then; of a doubted client with the usual loss in place of its own", fixed: true, class: "wide", cell: termCell },
  { key: "lowest", label: "Lowest picked", num: true, fixed: true },
  { key: "version", label: "Version", num: true, fixed: true },
  { key: "slots", label: "Slots", num: true, fixed: true },
  { key: "num_free", label: "Free clients", num: true, fixed: true },
];

const TASKS = [
  { key: "task", label: "Task", num: true, fixed: true },
  { key: "outcome", label: "Outcome", fixed: true, cell: (row) => [
    badge(OUTCOMES[row.outcome], row.outcome), row.reason ? el("span", { class: "sub" }, row.reason) : null,
    row.is_outlier ? el("span", { class: "sub" }, row.credits === null ? "outlier" : `outlier: ${counted(row.credits, "credit")} left`) : null] },
  { key: "started_at", label: "Started", num: true, fixed: true, cell: (row) => instant(row.started_at) },
  { key: "took", label: "Took", num: true, fixed: true, cell: (row) => row.ended_at === null ? UNKNOWN : duration(row.ended_at - row.started_at) },
  { key: "version", label: "From version", num: true, fixed: true },
  { key: "into_version", label: "Into version", num: true, fixed: true },
  { key: "staleness", label: "Staleness", num: true, fixed: true },
  { key: "weight", label: "Weight", num: true, fixed: true },
  { key: "loss", label: "Loss", num: true, fixed: true },
  { key: "loss_left", label: "Loss left", title: "Over its last local epoch", num: true, fixed: true },
];
