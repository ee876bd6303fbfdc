// Numbers, times and states as people read them. What is not known is a dash.

export const UNKNOWN = "–";

/** A number with about four digits. */
export function number(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (Number.isInteger(value)) return value.toLocaleString("en-US");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  if (size !== 0 && size < 0.001) return value.toExponential(1);
  return value.toFixed(size >= 100 ? 1 : size >= 1 ? 2 : 3);
}

/** `1 update`, `12,000 updates`. */
export function counted(num, one, many = `${one}s`) {
  return `${number(num)} ${num === 1 ? one : many}`;
}

/** An instant of the run's own time, told apart from those close by: `5,941.2 s`. */
export function instant(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  return `${seconds.toLocaleString("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 })} s`;
}

/** A metric: three digits behind the point, or as many as it needs to be told from its target. */
export function metric(value, target = null) {
  if (value === null || value === undefined) return UNKNOWN;
  if (Math.abs(value) >= 10 || Math.abs(value) < 0.001) return number(value);
  let digits = 3;
  while (target !== null && value !== target && digits < 9 && Number(value.toFixed(digits)) === target) digits += 1;
  return value.toFixed(digits);
}

/** The run's own seconds, as words and axes of figures have them (`pisces.quantities.duration`). */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds >= 1e4) return `${fixed(seconds / 3600, 1)} h`;
  return `${seconds >= 10 ? fixed(seconds, 0) : Number(seconds.toPrecision(2))} s`;
}

/** Of a run that goes on: `about 12 min 4 s`, or `at most about` where its target may end it; else nothing. */
export function timeLeft({ state, left_s: left, may_end_early: early }) {
  if (state !== "running" || left === null) return "";
  return `${early ? "at most about" : "about"} ${wallTime(left)}`;
}

function fixed(value, digits) {
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** So many seconds on the wall: `41 s`, `12 min 4 s`, `3 h 20 min`, `2 d 4 h`. */
export function wallTime(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 1) return `${number(seconds)} s`;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  const steps = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];
  const [large, largeName, small, smallName] = steps.find(([size]) => whole >= size);
  const rest = Math.floor((whole % large) / small);
  const main = `${Math.floor(whole / large)} ${largeName}`;
  return rest ? `${main} ${rest} ${smallName}` : main;
}

/** So many bytes: `812 B`, `19.5 kB`, `1.20 GB` (`pisces.quantities.in_bytes`). */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [size, step] = [value, 0];
  for (; size >= 999.5 && step < units.length - 1; step += 1) size /= 1000;
  const digits = step === 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  return `${fixed(size, digits)} ${units[step]}`;
}

export function percent(share) {
  if (share === null || share === undefined) return UNKNOWN;
  return `${Math.floor(100 * Math.min(1, Math.max(0, share)))} %`;
}

/** How long ago, in words. */
export function ago(seconds) {
  return seconds < 5 ? "just now" : `${wallTime(seconds).split(" ").slice(0, 2).join(" ")} ago`;
}

/** States of runs: colour and word. */
export const STATES = {
  running: ["live", "running"],
  silent: ["warn", "silent"],
  interrupted: ["warn", "interrupted"],
  finished: ["good", "finished"],
  empty: ["", "about to begin"],
  unbegun: ["warn", "not begun"],
  damaged: ["bad", "damaged"],
  sampled: ["", "sampled"],
};

/** A state's colour and word. */
export function state(name) {
  return STATES[name] ?? ["", name ?? "not read yet"];
}

// What clients do now, how they fared in a decision, what came of their tasks: colours.
export const STATUSES = { running: "live", waiting: "good", idle: "", new: "", gone: "warn", distrusted: "bad" };
export const FATES = { picked: "good", "passed over": "", running: "", waiting: "", gone: "warn", distrusted: "bad" };
export const OUTCOMES = { aggregated: "good", running: "live", waiting: "live", failed: "bad", dropped: "warn", "called off": "warn", left: "warn", "cut off": "" };

const REASONS = {
  target: "target reached", time: "time is up", versions: "all its versions", updates: "all its updates",
  patience: "no better for long",
};

/** Why a run is over. */
export function reason(name) {
  return REASONS[name] ?? name ?? "";
}

/** A name as a heading: `num_updates` is Updates, `latency_s` is Latency. */
export function titled(name) {
  return capital(name.replace(/^num_/, "").replace(/_(s|bytes)$/, "").replaceAll("_", " "));
}

export function capital(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
