// What all tables of clients have.

import { clientLink } from "./address.js";
import { el } from "./elements.js";
import { STATUSES } from "./words.js";
import { badge } from "./parts.js";

/** Who it is, and what it does now. */
export function clientColumns(run) {
  return [
    { key: "client", label: "Client", class: "name", cell: (row) => [
      el("a", { href: clientLink(run, row.client), "data-key": `client ${row.client}` }, String(row.client)),
      row.name ? el("span", { class: "sub" }, row.name) : null] },
    { key: "status", label: "Status", cell: (row) => badge(STATUSES[row.status], row.status) },
  ];
}

export const STATUS_FILTER = { key: "status", label: "Status", options: Object.keys(STATUSES).map((name) => [name, name]) };

/** Why there are no rows. */
export function noClients({ total }) {
  return total ? "No client fits: change the words or the status." : "No client has joined yet.";
}
