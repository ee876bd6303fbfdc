// Small parts that several pages have: badges, tiles, bars, and what stands where there is nothing.

import { el, refill, say } from "./elements.js";
import { percent, state } from "./words.js";

/** A word in its colour. */
export function badge(kind, words) {
  return el("span", { class: `badge ${kind ?? ""}` }, words);
}

/** A run's state in its colour. */
export function stateBadge(name, more = "") {
  const [kind, word] = state(name);
  return badge(kind, more ? `${word}: ${more}` : word);
}

/** A bar with words. */
export function bar(share, words, label) {
  return el("div", { class: "progress" },
    el("progress", { max: 1, value: share ?? 0, "aria-label": label }), words ? el("span", {}, words) : null);
}

/** Numbers with their names: made once, then only their texts change. */
export class Tiles {
  constructor(small = false) {
    this.element = el("dl", { class: small ? "tiles small" : "tiles" });
    this.tiles = new Map();
  }

  /** `values`: rows of name, number, and what else there is to say. */
  show(values) {
    const names = values.map(([name]) => name);
    if (names.join("\n") !== [...this.tiles.keys()].join("\n")) this.make(names);
    for (const [name, value, more] of values) {
      const { big, small } = this.tiles.get(name);
      say(big, value);
      say(small, more ?? "");
    }
  }

  make(names) {
    this.tiles.clear();
    this.element.replaceChildren(...names.map((name) => {
      const big = el("span", { class: "big" });
      const small = el("span", { class: "more" });
      this.tiles.set(name, { big, small });
      return el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, big, small));
    }));
  }
}

/** Where there is nothing to see: why, and what to do. */
export function nothing(what, ...todo) {
  return el("div", { class: "empty" }, el("p", {}, el("strong", {}, what)), todo.map((line) => el("p", {}, line)));
}

/** An address that leads nowhere, and where to go instead. */
export function noSuchPage(link) {
  return nothing("There is no such page.", link);
}

export function code(text) {
  return el("code", {}, text);
}

/** How far a log was read, while it is not all. */
export function reading(share) {
  return bar(share, `Reading the log: ${percent(share)}`, "Share of the log that was read");
}

/** A choice among a few, with its label; hidden where there is nothing to choose. */
export class Choice {
  constructor(label, chosen) {
    this.select = el("select", { on: { change: (event) => chosen(event.target.value) } });
    this.element = el("label", { hidden: true }, label, this.select);
  }

  /** `options`: rows of value and words; the same once more change nothing. */
  offer(options, value) {
    this.element.hidden = options.length < 2;
    refill(this.select, JSON.stringify(options), () => options.map(([name, words]) =>
      el("option", { value: name, selected: name === value }, words)));
  }
}
