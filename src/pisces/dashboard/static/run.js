// One run: its head, and one of its pages below.

import { clientLink, runLink } from "./address.js";
import { el, fill, say } from "./elements.js";
import { bar, noSuchPage, reading, stateBadge } from "./parts.js";
import { percent, reason, timeLeft, wallTime } from "./words.js";
import { aggregationsTab } from "./aggregations.js";
import { clientTab } from "./client.js";
import { clientsTab } from "./clients.js";
import { outliersTab } from "./outliers.js";
import { overviewTab } from "./overview.js";

const TABS = { overview: "Overview", clients: "Clients", aggregations: "Aggregations", outliers: "Outliers" };
const MAKE = { overview: overviewTab, clients: clientsTab, aggregations: aggregationsTab, outliers: outliersTab };

export function runPage({ run, tab, client, wake }) {
  const title = el("h1", {}, run);
  const path = el("p", { class: "path" }, el("a", { href: "#/" }, "Runs"), ` / ${run === "." ? "this run" : run}`);
  const states = el("span", {});
  const progress = el("div", {});
  const problem = el("p", { class: "problem", role: "alert", hidden: true });
  const tabs = el("nav", { class: "tabs", "aria-label": "Pages of this run" },
    Object.entries(TABS).map(([name, label]) => el("a", { href: runLink(run, name), "data-tab": name }, label)));
  const body = el("div", {});
  const element = el("div", {},
    el("div", { class: "head" }, path, el("div", { class: "line" }, title, states), progress, problem), tabs, body);
  let below = null;
  let seen = null;

  function open(name, number) {
    below?.close?.();
    const make = number && name === "clients" ? clientTab : (number ? missingTab : MAKE[name] ?? missingTab);
    below = { title: TABS[name], ...make({ run, name, client: number, wake }) };
    fill(body, below.element);
    for (const link of tabs.children) {
      if (link.dataset.tab === name) link.setAttribute("aria-current", number ? "true" : "page");
      else link.removeAttribute("aria-current");
    }
  }

  async function update(ask) {
    const glance = await ask("overview", { run });
    if (glance !== seen) showHead(glance);
    seen = glance;
    this.title = below.title ? `${below.title} · ${glance.name}` : glance.name;
    await below.update(ask, glance);
  }

  function showHead(glance) {
    say(title, glance.name);
    fill(states, stateBadge(glance.state, stateWords(glance)));
    fill(progress, glance.is_whole || glance.problem ? progressBar(glance) : reading(glance.share_read));
    problem.hidden = !glance.problem;
    tabs.hidden = body.hidden = glance.state === "sampled";
    problem.className = glance.state === "sampled" ? "note" : "problem";
    say(problem, problemWords(glance));
  }

  open(tab, client);
  return {
    element, update, title: run,
    stays: (place) => place.page === "run" && place.run === run,
    turnTo: (place) => open(place.tab, place.client),
    close: () => below?.close?.(),
  };
}

function missingTab({ run, name, client }) {
  const isClient = name === "client" && client;
  const link = isClient ? el("a", { href: clientLink(run, client) }, `Client ${client}`) : el("a", { href: runLink(run) }, "Overview of this run");
  return { element: noSuchPage(link), update: async () => {} };
}

const SAMPLED = "Its log has the lines of some clients only, and is not shown: counts of them would be wrong. "
  + "pisces runs and pisces report tell what the run came to.";

function problemWords({ state, problem }) {
  if (!problem) return "";
  return state === "sampled" ? SAMPLED : `The log cannot be read any further; what was read before is shown. ${problem}`;
}

function stateWords({ state, reason: why, silent_s: silent, goes_on: who, problem }) {
  if (state === "damaged" || state === "sampled") return ""; // below it stands what to do
  if (problem) return "log damaged";
  if (state === "silent" || state === "unbegun") return `nobody has written for ${wallTime(silent)}; ${who}`;
  if (state === "interrupted") return who;
  return state === "finished" ? reason(why) : "";
}

function progressBar(glance) {
  const { state, share_done: share, limit } = glance;
  if (state !== "running" || share === null) return null;
  const left = timeLeft(glance);
  const rest = left && `, ${left} left`;
  return bar(share, `${percent(share)} of its ${limit ?? "limit"}${rest}`, "Share of the run that is done");
}
