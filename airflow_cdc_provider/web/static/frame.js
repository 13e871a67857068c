// Airflow's frame around the page: its sandbox, and its address.
//
// The sandbox lets no link of ours replace Airflow's page or open a tab. Airflow's page is of this
// server too, so a link in that page is followed instead. And Airflow leaves its frame as it is
// when somebody presses “CDC” in its navigation while the frame is there already.

import { h } from "./dom.js";

const LOOK_EVERY_MS = 100;
const BARE = /\/plugin\/cdc\/?$/;
const isFramed = window.top !== window.self;

/** A link that leads out of the page, also where Airflow has it in a frame. */
export const leaving = (href, text, more = {}) =>
  h("a", { href, ...more, onclick: isFramed ? followed : null }, text);

function followed(event) {
  const { href, target } = event.currentTarget;
  const isOther = event.ctrlKey || event.metaKey || event.shiftKey;
  event.preventDefault();
  const outer = window.top.document;
  const link = outer.createElement("a");
  link.href = href;
  link.target = isOther ? "_blank" : target;
  link.rel = "noopener noreferrer";
  outer.body.append(link);
  link.click();
  link.remove();
}

/** Go to the list where Airflow's own address says that somebody asked for it. */
export function followNavigation() {
  if (!isFramed) return;
  let wasInside = false;
  setInterval(() => {
    const isBare = BARE.test(window.top.location.pathname);
    if (isBare && wasInside) location.assign("page");
    wasInside ||= !isBare;
  }, LOOK_EVERY_MS);
}
