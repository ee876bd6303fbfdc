// A run at a glance: how good, how far, who works.

import { el, say } from "./elements.js";
import { Picture } from "./figure.js";
import { Choice, Tiles } from "./parts.js";
import { capital, counted, duration, metric as told, number, percent, timeLeft, UNKNOWN } from "./words.js";

export function overviewTab({ run, wake }) {
  const tiles = new Tiles();
  const counts = new Tiles(true);
  const note = el("p", { class: "note", hidden: true });
  const choice = new Choice("Metric", (name) => { metric = name; wake(); });
  const controls = el("div", { class: "controls", hidden: true }, choice.element);
  const picture = new Picture({ controls });
  let metric = null;

  async function update(ask, glance) {
    tiles.show(main(glance));
    counts.show(clients(glance));
    note.hidden = !glance.note;
    say(note, glance.note ?? "");
    choice.offer(glance.metric_names.map((name) => [name, name]), metric ?? glance.metric);
    controls.hidden = choice.element.hidden;
    await picture.show(await ask("figure", { run, name: "curve", metric }));
  }

  return {
    element: el("div", { class: "stack" }, tiles.element, picture.element, counts.element, note),
    update, close: () => picture.close(),
  };
}

function main(g) {
  const name = g.metric ?? "metric";
  const now = g.reason === null ? "now" : "at the end";
  const clock = g.clock === "virtual" ? "virtual time" : "since it began";
  return [
    [`${capital(name)} ${now}`, told(g.value, g.target), g.best === null ? "not evaluated yet" : `best ${told(g.best, g.target)}`],
    ["Target", told(g.target), target(g)],
    ["Time", duration(g.at), clock],
    ["Time left", timeLeft(g) || UNKNOWN, left(g)],
    ["Versions", number(g.version), `${counted(g.num_aggregated, "update")} in them`],
    ["Throughput", g.updates_per_s === null ? UNKNOWN : `${number(g.updates_per_s)} /s`, throughput(g)],
    [`Staleness ${now}`, number(g.staleness_now), staleness(g)],
  ];
}

function target(g) {
  if (g.target === null) return g.is_target_known ? "none was set" : "not known";
  if (g.time_to_target_s !== null) return `met after ${duration(g.time_to_target_s)}`;
  if (g.state === "damaged") return "not met as far as can be read";
  return g.state === "finished" ? "not reached" : "not met yet";
}

function left(g) {
  if (g.state === "damaged" || g.state === "sampled") return "not known";
  if (g.state !== "running") return g.state === "finished" ? "it is over" : "it does not run";
  return g.share_done === null ? "no limit is set" : `by the wall; ${percent(g.share_done)} done`;
}

function throughput(g) {
  const when = g.reason === null ? "lately" : "on the whole";
  const own = `updates ${when}${g.clock === "virtual" ? ", virtual time" : ""}`;
  return g.updates_per_wall_s === null || g.clock === "wall" ? own : `${own}; ${number(g.updates_per_wall_s)} /s by the wall`;
}

function staleness(g) {
  const most = g.staleness_max === null ? "" : `mean ${number(g.staleness_mean)}, largest ${g.staleness_max}`;
  const bound = g.staleness_bound === null ? "no bound" : `bound ${number(g.staleness_bound)}`;
  return most ? `${most}, ${bound}` : bound;
}

function clients(g) {
  return [
    ["Clients", number(g.num_clients), g.num_gone ? `${number(g.num_gone)} gone` : "all there"],
    ["Running", number(g.num_running), g.concurrency === null ? "" : `of ${number(g.concurrency)} at once`],
    ["Idle", number(g.num_idle), "free to be picked"],
    ["Buffered", number(g.num_buffered), "updates that wait"],
    ["Failed", number(g.num_failed), unfinished(g)],
    ["Distrusted", number(g.num_distrusted), counted(g.num_outliers, "outlier")],
    ["Updates", number(g.num_updates), `of ${counted(g.num_started, "task")}` + (g.num_dropped ? `, ${number(g.num_dropped)} dropped` : "")],
  ];
}

/** Other tasks that came to nothing: with those that failed or run and the updates they are all there are. */
function unfinished(g) {
  const parts = [[g.num_given_up, "called off"], [g.num_tasks_left, "left"], [g.num_under_way, "cut off by the end"]];
  return parts.filter(([num]) => num).map(([num, words]) => `${number(num)} ${words}`).join(", ") || "no other task came to nothing";
}
