// Outliers: losses, clusters and credits.

import { clientColumns, noClients, STATUS_FILTER } from "./columns.js";
import { el } from "./elements.js";
import { Picture } from "./figure.js";
import { Table } from "./table.js";

export function outliersTab({ run, wake }) {
  const picture = new Picture();
  const asked = { order: "credits", descending: "0", first: 0 };
  const table = new Table({
    label: "Clients by credits", asked, changed: wake, search: "Find a client", filter: STATUS_FILTER,
    columns: [
      ...clientColumns(run),
      { key: "credits", label: "Credits left", num: true },
      { key: "loss", label: "Last loss", num: true },
      { key: "updates", label: "Updates", num: true },
      { key: "num_examples", label: "Size", num: true },
    ],
  });
  return {
    element: el("div", { class: "stack" }, picture.element,
      el("section", { "aria-label": "Credits" }, el("h2", {}, "Credits, fewest first"), table.element)),
    update: (ask) => Promise.all([
      ask("clients", { run, ...asked }).then((rows) => table.show(rows, noClients(rows))),
      ask("figure", { run, name: "losses" }).then((figure) => picture.show(figure)),
    ]),
    close: () => picture.close(),
  };
}
