// Addresses within the page: `#/`, `#/run/<name>/<tab>/<client>`, `#/compare?run=…`.

/** What an address asks for; `page` is empty for the list of runs. */
export function parsed(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", run = "", tab = "", client = ""] = path.split("/").map(decoded);
  return { page, run, tab: tab || "overview", client, query: new URLSearchParams(query) };
}

function decoded(part) {
  try { return decodeURIComponent(part); } catch { return part; }
}

export function runLink(run, tab = "") {
  return `#/run/${encodeURIComponent(run)}${tab ? `/${tab}` : ""}`;
}

export function clientLink(run, client) {
  return `${runLink(run, "clients")}/${encodeURIComponent(client)}`;
}

/** These runs side by side; of `wanted` what is not empty. */
export function compareLink(runs, wanted = {}) {
  const query = new URLSearchParams(runs.map((run) => ["run", run]));
  for (const [key, value] of Object.entries(wanted)) if (value !== "") query.set(key, value);
  return `#/compare?${query}`;
}
