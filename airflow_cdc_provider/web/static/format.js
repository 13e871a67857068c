// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const NOTHING = "–";

const isNothing = (value) => value === null || value === undefined;

export const count = (number) => (isNothing(number) ? NOTHING : whole.format(number));
export const compact = (number) => (isNothing(number) ? NOTHING : short.format(number));
/** A noun without its number: row, rows. */
export const noun = (number, one, many = `${one}s`) => (number === 1 ? one : many);
export const plural = (number, one, many) => `${whole.format(number)} ${noun(number, one, many)}`;

export function rate(number) {
  if (isNothing(number)) return NOTHING;
  return number > 0 && number < 10 ? number.toFixed(1) : short.format(number);
}

/** Seconds, in the two largest units. */
export function seconds(value) {
  if (isNothing(value)) return NOTHING;
  if (value < 1) return value === 0 ? "0 s" : `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

/** A span of time that was chosen, as 15 min. */
export function span(value) {
  for (const [size, name] of [[86_400, "d"], [3600, "h"], [60, "min"]]) {
    if (value % size === 0) return `${value / size} ${name}`;
  }
  return `${value} s`;
}

// a billion of them is a gigabyte
export const bytes = (number) =>
  `${short.format(number).replace("B", "G").replace(/[A-Z]?$/, "\u00a0$&")}B`;

const DATE = { month: "short", day: "2-digit" };
const TIME = { hour: "2-digit", minute: "2-digit" };
const day = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  ...DATE,
  ...TIME,
  second: "2-digit",
});
const time = new Intl.DateTimeFormat("en-GB", TIME);
const dated = new Intl.DateTimeFormat("en-GB", { ...DATE, ...TIME });
export const moment = (us) => day.format(new Date(us / 1000));

/** A moment in few letters: of today its time alone. */
export function when(us) {
  if (isNothing(us)) return NOTHING;
  const at = new Date(us / 1000);
  const isToday = at.toDateString() === new Date().toDateString();
  return (isToday ? time : dated).format(at);
}

const WORDS = {
  new: "never run",
  handed_off: "handed off",
  catching_up: "catching up",
};
export const words = (name) => WORDS[name] ?? String(name).replaceAll("_", " ");
