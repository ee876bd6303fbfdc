// Asking the server. What did not change is not sent again: the last answer is kept, with its revision.

/** The server cannot be reached. */
export class Unreachable extends Error {}

/** The server says why there is no answer. */
export class Problem extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

const MOST = 60; // answers kept
const PATIENCE_MS = 30000;
const SLOW_MS = 150; // what takes longer is not asked for at every beat ...
const REST = 5; // ... but rests for so many times as long
const known = new Map();
const rests = new Map(); // when each may be asked for again

let aheadMs = 0; // the server's clock of ours

/** Seconds since 1970 by the server's clock, which is also that of run folders. */
export function now() {
  return (Date.now() + aheadMs) / 1000;
}

/** What asks for one beat of the page: once `signal` says that it is over, nothing comes of it. */
export function asking(signal) {
  return (question, wanted = {}) => ask(question, wanted, signal);
}

/** Ask; the same object again means that nothing has changed. */
async function ask(question, wanted, signal) {
  signal.throwIfAborted();
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(wanted)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(key, one);
    }
  }
  const address = `/api/${question}?${query}`;
  const before = known.get(address);
  if (before && performance.now() < (rests.get(address) ?? 0)) return before;
  const began = performance.now();
  const response = await fetched(before ? `${address}&since=${encodeURIComponent(before.revision)}` : address, signal);
  const answer = response.status === 204 && before ? before : await read(response);
  const took = performance.now() - began;
  if (took > SLOW_MS) rests.set(address, performance.now() + REST * took);
  known.delete(address); // what is asked for goes on being known
  known.set(address, answer);
  if (known.size > MOST) {
    const oldest = known.keys().next().value;
    known.delete(oldest);
    rests.delete(oldest);
  }
  return answer;
}

async function fetched(address, over) {
  try {
    const signal = AbortSignal.any([over, AbortSignal.timeout(PATIENCE_MS)]);
    const response = await fetch(address, { credentials: "same-origin", cache: "no-store", signal });
    const at = Date.parse(response.headers.get("date"));
    if (at) aheadMs = at - Date.now();
    return response;
  } catch {
    throw new Unreachable();
  }
}

async function read(response) {
  if (response.status === 401) {
    throw new Problem("this browser does not know the token (any more): open the link that pisces watch printed", 401);
  }
  let answer;
  try {
    answer = await response.json();
  } catch {
    throw new Unreachable();
  }
  if (!response.ok) throw new Problem(answer.problem ?? "no answer", response.status);
  return answer;
}
