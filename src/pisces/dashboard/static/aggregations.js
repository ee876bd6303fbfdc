// Aggregations: how far apart, of whom, how stale.

import { el } from "./elements.js";
import { Picture } from "./figure.js";

export function aggregationsTab({ run }) {
  const names = ["intervals", "contributors", "staleness"];
  const pictures = names.map(() => new Picture());
  const [intervals, contributors, staleness] = pictures.map((picture) => picture.element);
  return {
    element: el("div", { class: "stack" }, intervals, el("div", { class: "pair" }, contributors, staleness)),
    update: async (ask) => {
      const figures = await Promise.all(names.map((name) => ask("figure", { run, name })));
      await Promise.all(figures.map((figure, i) => pictures[i].show(figure)));
    },
    close: () => pictures.forEach((picture) => picture.close()),
  };
}
