// Tabs, of which the address remembers the one that is open.

import { h } from "./dom.js";

/** Make tabs of names and elements; `label` gives one another text. */
export function tabs(parts) {
  const buttons = new Map();
  const list = h("div", { class: "tabs", role: "tablist" });
  for (const [name, panel] of Object.entries(parts)) {
    const key = name.toLowerCase();
    const button = h(
      "button",
      { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": `panel-${key}`, onclick: () => open(name) },
      name,
    );
    panel.id = `panel-${key}`;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", button.id);
    buttons.set(name, button);
    list.append(button);
  }
  list.addEventListener("keydown", (event) => {
    const names = [...buttons.keys()];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = names.findIndex((name) => buttons.get(name) === document.activeElement);
    const next = names[(at + step + names.length) % names.length];
    buttons.get(next).focus();
    open(next);
  });

  function show(name) {
    for (const [each, button] of buttons) {
      button.setAttribute("aria-selected", String(each === name));
      button.tabIndex = each === name ? 0 : -1;
      parts[each].hidden = each !== name;
    }
  }

  function open(name) {
    show(name);
    history.replaceState(history.state, "", `${location.pathname}${location.search}#${name.toLowerCase()}`);
  }

  const named = () => [...buttons.keys()].find((name) => `#${name.toLowerCase()}` === location.hash);
  addEventListener("hashchange", () => show(named() ?? [...buttons.keys()][0]));
  show(named() ?? [...buttons.keys()][0]);
  return {
    element: h("section", { class: "tabbed" }, list, Object.values(parts)),
    open,
    label(name, count, tone = "") {
      buttons.get(name).replaceChildren(name, count === "" ? "" : h("span", { class: `count ${tone}` }, ` ${count}`));
    },
  };
}
