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

/** Ask; the same object again means that nothing has changed. */
export async function ask(question, wanted = {}) {
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
  const response = await fetched(before ? `${address}&since=${encodeURIComponent(before.revision)}` : address);
  if (response.status === 204 && before) return before;
  const answer = await read(response);
  const took = performance.now() - began;
  if (took > SLOW_MS) rests.set(address, performance.now() + REST * took);
  known.delete(address);
  known.set(address, answer);
  if (known.size > MOST) {
    const oldest = known.keys().next().value;
    known.delete(oldest);
    rests.delete(oldest);
  }
  return answer;
}

async function fetched(address) {
  try {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    return await fetch(address, { credentials: "same-origin", cache: "no-store", signal });
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
