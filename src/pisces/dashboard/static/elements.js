// Making elements. Text goes in as text and nothing else does: there is no way to hand over markup.

const LINK = /^#/; // the page links to itself only

/** An element with its facts (attributes, `class`, `on` with listeners) and children. */
export function el(name, facts = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(facts)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (key === "href" && !LINK.test(value)) {
      throw new Error("links lead to this page only");
    } else if (key.startsWith("on") || key === "style" || key === "src") {
      throw new Error(`no ${key} here`);
    } else if (["value", "checked", "disabled", "hidden"].includes(key)) {
      made[key] = value;
    } else {
      made.setAttribute(key, value === true ? "" : String(value));
    }
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined).map(node));
  return made;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Put these in place of what is there; where the focus was, it stays. */
export function fill(parent, ...children) {
  const held = parent.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  delete parent.dataset.shown;
  parent.replaceChildren(...children.flat().filter(Boolean).map(node));
  if (held) {
    for (const found of parent.querySelectorAll("[data-key]")) {
      if (found.dataset.key === held) { found.focus({ preventScroll: true }); break; }
    }
  }
}

/** The same, but only if what is there was not made for this very `key`: what is selected stays so. */
export function refill(parent, key, make) {
  if (parent.dataset.shown === key) return;
  fill(parent, make());
  parent.dataset.shown = key;
}

/** Say it, unless it is said already. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

let numbered = 0;

/** An id that nothing else has. */
export function newId() {
  numbered += 1;
  return `n${numbered}`;
}
