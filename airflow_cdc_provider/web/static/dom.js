// Elements from values. Text is set as text and never read as markup.

const isShown = (child) => child !== null && child !== undefined && child !== false;

/** Make an element; `on*` attributes are listeners, others are set as they are. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter(isShown));
  return element;
}

/** Put new children where others were; what had the focus keeps it, by its `data-key`. */
export function replace(parent, ...children) {
  const key = parent.contains(document.activeElement)
    ? document.activeElement.dataset.key
    : undefined;
  parent.replaceChildren(...children.flat(Infinity).filter(isShown));
  if (key !== undefined) {
    parent.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  }
}

/** A part of the page that is made anew only when what it shows has changed. */
export function part(element, make) {
  let shown;
  return (value) => {
    const now = JSON.stringify(value);
    if (now === shown) return;
    shown = now;
    replace(element, make(value));
  };
}
