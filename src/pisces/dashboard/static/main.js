// Which page is shown, and how it is kept up to date: once a second, while somebody looks.

import { el, fill, say } from "./elements.js";
import { redraw } from "./figure.js";
import { Problem, Unreachable } from "./net.js";
import { noSuchPage, nothing } from "./parts.js";
import { comparePage } from "./compare.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";

const EVERY_MS = 1000;
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let page = null;
let timer = 0;
let turn = 0;

// The token has done its work: it is in a cookie now, and need not stay in sight.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

/** `#/run/<name>/<tab>/<client>`, `#/compare?run=…`, `#/`. */
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [what = "", ...rest] = path.split("/").map(decoded);
  if (what === "run" && rest[0]) return runPage({ run: rest[0], tab: rest[1] || "overview", client: rest[2], wake });
  if (what === "compare") return comparePage({ query: new URLSearchParams(query), wake });
  return what === "" ? runsPage({ wake }) : missingPage();
}

/** Somebody mistyped an address, or followed an old one. */
function missingPage() {
  return { element: noSuchPage(el("a", { href: "#/" }, "All runs")), update: async () => {}, title: "No such page" };
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

function go() {
  const before = page;
  turn += 1;
  // Tabs of one run share its head: only what is below is made anew.
  const [, what, run] = location.hash.split(/[/?]/);
  if (before?.stays?.(what, decoded(run ?? ""))) {
    before.turnTo(location.hash);
  } else {
    before?.close?.();
    page = route();
    fill(main, page.element);
    if (before) { // else whoever comes by keyboard begins at the top
      main.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }
  for (const link of document.querySelectorAll("#places a")) {
    const isHere = (link.hash === "#/compare") === (what === "compare") && ["run", "compare", "", undefined].includes(what);
    if (isHere) link.setAttribute("aria-current", what === "compare" || !what ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  wake();
}

/** Look now, not only at the next beat. */
function wake() {
  clearTimeout(timer);
  timer = setTimeout(beat, 0);
}

async function beat() {
  clearTimeout(timer);
  if (document.hidden) return;
  const [now, shown, start] = [turn, page, performance.now()];
  try {
    await shown.update();
    performance.measure("update", { start }); // for whoever wants to know how quick it is
    if (performance.getEntriesByName("update").length > 500) performance.clearMeasures("update");
    if (now === turn) reached();
  } catch (error) {
    if (now === turn) trouble(error);
  }
  clearTimeout(timer);
  timer = setTimeout(beat, EVERY_MS);
}

function reached() {
  banner.hidden = true;
  if (!page.element.isConnected) { // it was not there for a while, and nothing is drawn out of sight
    fill(main, page.element);
    redraw();
  }
  document.title = page.title ? `${page.title} · Pisces` : "Pisces";
}

function trouble(error) {
  if (error instanceof Unreachable) {
    say(banner, "pisces watch is not reachable, trying again. Has it ended? What you see is as it was.");
  } else if (error instanceof Problem) {
    if (error.status === 404) { // it may come (again): a run is replaced, or about to begin
      fill(main, nothing(`${error.message}.`, "The page goes on as soon as it is there.", el("a", { href: "#/" }, "All runs")));
      return;
    }
    say(banner, `${error.message}.`);
  } else {
    say(banner, "The page stumbled: load it again. If that does not help, it is a bug in Pisces.");
    console.error(error);
  }
  banner.hidden = false;
}

const themes = document.getElementById("theme");
themes.value = document.documentElement.dataset.theme;
themes.addEventListener("change", () => {
  document.documentElement.dataset.theme = themes.value;
  try { localStorage.setItem("pisces-theme", themes.value); } catch { /* it is not remembered then */ }
  redraw();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which page it is
  main.focus();
});
document.addEventListener("visibilitychange", wake);
addEventListener("hashchange", go);
go();
