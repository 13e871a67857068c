// A text with a button that copies it: the page writes no file.

import { h } from "./dom.js";

const SAID_MS = 2000;

/** A text as it is, and a button that copies it; `what` is what the button says of it. */
export function copied(text, what) {
  const pre = h("pre", { tabindex: "0" }, text);
  const button = h("button", { type: "button", class: "small", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    button.textContent = (await isCopied(text, pre)) ? "Copied" : "Marked: copy it";
    setTimeout(() => {
      button.textContent = "Copy";
    }, SAID_MS);
  });
  return h("div", { class: "copied" }, button, pre);
}

/** Copy a text. Browsers lend the clipboard to pages by HTTPS only; else the text is marked. */
async function isCopied(text, pre) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    getSelection().selectAllChildren(pre);
    return document.execCommand("copy");
  }
}
