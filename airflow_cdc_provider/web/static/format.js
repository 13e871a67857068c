// Numbers and times as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NOTHING = "–";

export const count = (number) => (number === null ? NOTHING : whole.format(number));
export const compact = (number) =>
  number === null || number === undefined ? NOTHING : short.format(number);

export function rate(number) {
  if (number === null || number === undefined) return NOTHING;
  return number > 0 && number < 10 ? number.toFixed(1) : short.format(number);
}

/** Seconds, in the two largest units. */
export function seconds(value) {
  if (value === null || value === undefined) return NOTHING;
  if (value < 1) return value === 0 ? "0 s" : `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 60) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
}

// a billion of them is a gigabyte
export const bytes = (number) =>
  `${short.format(number).replace("B", "G").replace(/[A-Z]?$/, "\u00a0$&")}B`;

const day = new Intl.DateTimeFormat("en-GB", {
  year: "numeric",
  month: "short",
  day: "2-digit",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
});
export const moment = (us) => day.format(new Date(us / 1000));

const WORDS = {
  new: "never run",
  handed_off: "handed off",
  catching_up: "catching up",
};
export const words = (name) => WORDS[name] ?? String(name).replaceAll("_", " ");
