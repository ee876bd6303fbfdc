// Aggregations: how far apart, of whom, how stale. Outliers: losses, clusters and credits.

import { el } from "./elements.js";
import { clientLink } from "./clients.js";
import { Picture } from "./figure.js";
import { ask } from "./net.js";
import { statusBadge } from "./parts.js";
import { Table } from "./table.js";

export function aggregationsTab({ run }) {
  const names = ["intervals", "contributors", "staleness"];
  const pictures = names.map(() => new Picture());
  const [intervals, contributors, staleness] = pictures.map((picture) => picture.element);
  return {
    element: el("div", { class: "stack" }, intervals, el("div", { class: "pair" }, contributors, staleness)),
    update: async () => {
      const figures = await Promise.all(names.map((name) => ask("figure", { run, name })));
      await Promise.all(figures.map((figure, i) => pictures[i].show(figure)));
    },
    close: () => pictures.forEach((picture) => picture.close()),
  };
}

export function outliersTab({ run, wake }) {
  const picture = new Picture();
  const asked = { order: "credits", descending: "0", first: 0, num: 25 };
  const table = new Table({
    label: "Clients by credits", asked, changed: wake, search: "Find a client",
    filter: { key: "status", label: "Status", options: ["running", "waiting", "idle", "new", "gone", "distrusted"] },
    columns: [
      { key: "client", label: "Client", class: "name", cell: (row) => [
        el("a", { href: clientLink(run, row.client), "data-key": `client ${row.client}` }, String(row.client)),
        row.name ? el("span", { class: "sub" }, row.name) : null] },
      { key: "status", label: "Status", cell: (row) => statusBadge(row.status) },
      { key: "credits", label: "Credits left", num: true },
      { key: "loss", label: "Last loss", num: true },
      { key: "updates", label: "Updates", num: true },
      { key: "num_examples", label: "Size", num: true },
    ],
  });
  return {
    element: el("div", { class: "stack" }, picture.element,
      el("section", { "aria-label": "Credits" }, el("h2", {}, "Credits, fewest first"), table.element)),
    update: async () => {
      const shown = (rows) => table.show(rows, rows.total ? "No client fits: change the words or the status." : "No client has joined yet.");
      await Promise.all([
        ask("clients", { run, ...asked }).then(shown),
        ask("figure", { run, name: "losses" }).then((figure) => picture.show(figure)),
      ]);
    },
    close: () => picture.close(),
  };
}
