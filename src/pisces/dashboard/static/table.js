// Tables that the server sorts, filters and cuts into pages.

import { el, fill, newId, say } from "./elements.js";
import { number } from "./words.js";

const PAGE = 25;
const TYPING_MS = 250;

/**
 * A table: `columns` have `key`, `label`, perhaps `title`, `num` (a number), `cell(row)` and
 * `fixed` (not sorted by). `asked` is what to ask the server for; `changed` is called when it is
 * something else now. `filter` is a choice; its `options` are rows of value and words.
 */
export class Table {
  constructor({ label, columns, asked, changed, search = null, filter = null, extra = [] }) {
    Object.assign(this, { label, columns, asked, changed, filter });
    this.asked.num ??= PAGE;
    this.asked.first ??= 0;
    this.answer = null;
    this.heads = new Map();
    this.top = el("tr");
    this.body = el("tbody");
    this.pages = el("div", { class: "pager" });
    this.empty = el("p", { class: "empty", hidden: true });
    const controls = [search ? this.searchBox(search) : null, filter ? this.filterBox(filter) : null, ...extra];
    this.scroll = el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": label },
      el("table", {}, el("thead", {}, this.top), this.body));
    this.element = el("div", { class: "table" },
      controls.some(Boolean) ? el("div", { class: "controls" }, controls) : null,
      this.scroll, this.empty, this.pages);
    this.setColumns(columns);
  }

  /** Other columns, known apart by `kind`. */
  setColumns(columns, kind = "") {
    if (this.kind === kind) return;
    [this.columns, this.kind, this.answer] = [columns, kind, null];
    this.heads.clear();
    fill(this.top, columns.map((column) => this.head(column)));
    this.mark();
  }

  head(column) {
    const facts = { scope: "col", class: column.num ? "num" : null, title: column.title };
    const cell = el("th", facts, column.fixed ? column.label
      : el("button", { type: "button", "data-key": column.key, on: { click: () => this.sort(column) } }, column.label));
    this.heads.set(column.key, cell);
    return cell;
  }

  searchBox(words) {
    let timer = 0;
    const find = (event) => {
      clearTimeout(timer);
      timer = setTimeout(() => this.change({ find: event.target.value, first: 0 }), TYPING_MS);
    };
    const id = newId();
    return el("label", { for: id }, words,
      el("input", { id, type: "search", value: this.asked.find ?? "", autocomplete: "off", maxlength: 200, on: { input: find } }));
  }

  filterBox({ key, label, options }) {
    const choose = (event) => this.change({ [key]: event.target.value, first: 0 });
    this.select = el("select", { on: { change: choose } },
      el("option", { value: "" }, "all"), options.map(([name, words]) => el("option", { value: name }, words)));
    this.select.value = this.asked[key] ?? "";
    return el("label", {}, label, this.select);
  }

  sort(column) {
    const isSame = this.asked.order === column.key;
    const first = column.num ? "1" : "0"; // of numbers the largest are asked for most
    const descending = isSame ? (this.asked.descending === "1" ? "0" : "1") : first;
    this.change({ order: column.key, descending, first: 0 });
  }

  change(asked) {
    this.ask(asked);
    this.changed();
  }

  /** Something else from the next beat on. */
  ask(asked) {
    Object.assign(this.asked, asked);
    this.mark();
  }

  mark() {
    for (const [key, cell] of this.heads) {
      if (key !== this.asked.order) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", this.asked.descending === "1" ? "descending" : "ascending");
    }
  }

  /** Show an answer: its `rows`, and where they stand among `found`. */
  show(answer, nothing) {
    if (answer === this.answer) return;
    fill(this.body, answer.rows.map((row) => el("tr", {}, this.columns.map((column) => this.cell(column, row)))));
    this.answer = answer; // only now: rows that could not be made are tried again, and the trouble told
    this.scroll.hidden = answer.rows.length === 0;
    this.empty.hidden = answer.rows.length > 0;
    say(this.empty, nothing);
    if (answer.rows.length === 0 && answer.found > 0 && answer.first > 0) this.change({ first: 0 });
    this.showPages(answer);
  }

  cell(column, row) {
    const content = column.cell ? column.cell(row) : number(row[column.key]);
    const kind = [column.num ? "num" : "", column.class ?? ""].join(" ").trim();
    return el("td", { class: kind || null }, content);
  }

  showPages({ first, found, rows }) {
    const size = this.asked.num;
    this.pages.hidden = found <= size && first === 0;
    if (this.pages.hidden) return;
    const turn = (to, label, key) => el("button", { type: "button", class: "button", "data-key": key,
      disabled: to < 0 || to >= found, on: { click: () => this.change({ first: Math.max(0, to) }) } }, label);
    fill(this.pages,
      turn(first > 0 ? Math.max(0, first - size) : -1, "‹ Previous", "previous"), turn(first + size, "Next ›", "next"),
      el("span", { role: "status" }, `${number(first + 1)} to ${number(first + rows.length)} of ${number(found)}`));
  }
}
