// Which page is shown, and how it is kept up to date: once a second, while somebody looks.

import { parsed } from "./address.js";
import { el, fill, refill, say } from "./elements.js";
import { redraw } from "./figure.js";
import { asking, Problem, Unreachable } from "./net.js";
import { noSuchPage, nothing } from "./parts.js";
import { comparePage } from "./compare.js";
import { runPage } from "./run.js";
import { runsPage } from "./runs.js";

const EVERY_MS = 1000;
const main = document.getElementById("main");
const banner = document.getElementById("banner");
let page = null;
let timer = 0;
let beating = new AbortController();

// The token has done its work: it is in a cookie now, and need not stay in sight.
if (location.search) history.replaceState(null, "", location.pathname + location.hash);

function made(place) {
  if (place.page === "run" && place.run) return runPage({ ...place, wake });
  if (place.page === "compare") return comparePage(place);
  return place.page === "" ? runsPage({ wake }) : missingPage();
}

/** Somebody mistyped an address, or followed an old one. */
function missingPage() {
  return { element: noSuchPage(el("a", { href: "#/" }, "All runs")), update: async () => {}, title: "No such page" };
}

function go() {
  const place = parsed(location.hash);
  // Tabs of one run share its head: only what is below is made anew.
  if (page?.stays?.(place)) page.turnTo(place);
  else turnTo(place);
  for (const link of document.querySelectorAll("#places a")) {
    const own = parsed(link.hash).page;
    if (place.page === own) link.setAttribute("aria-current", "page");
    else if (place.page === "run" && own === "") link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  wake();
}

function turnTo(place) {
  const before = page;
  before?.close?.();
  page = made(place);
  fill(main, page.element);
  if (!before) return; // whoever comes by keyboard begins at the top
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

/** Look now, not only at the next beat; of one that is under way nothing is shown any more. */
function wake() {
  beating.abort();
  clearTimeout(timer);
  timer = setTimeout(beat, 0);
}

async function beat() {
  if (document.hidden) return;
  const own = beating = new AbortController();
  const start = performance.now();
  const error = await page.update(asking(own.signal)).then(() => null, (reason) => reason);
  if (own.signal.aborted) return;
  own.abort(); // what is still on its way when one question fails is not waited for
  timer = setTimeout(beat, EVERY_MS); // first of all: whatever happens, the page goes on
  if (error) trouble(error);
  else reached(start);
}

function reached(start) {
  performance.measure("update", { start }); // for whoever wants to know how quick it is
  if (performance.getEntriesByName("update").length > 500) performance.clearMeasures("update");
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
      banner.hidden = true;
      refill(main, error.message, () => nothing(`${error.message}.`, "The page goes on as soon as it is there.", el("a", { href: "#/" }, "All runs")));
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
