// What a person takes elsewhere: a command, a token. A button beside it puts its text on the clipboard.
import { announce } from "./forms.js";

export function watchCopying(root) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (button) copy(button.parentElement.querySelector("pre, .made"));
  });
}

// Pages on loopback and over TLS have a clipboard, and a browser may still refuse: then the text is chosen, to be copied
// by hand.
async function copy(place) {
  try {
    await navigator.clipboard.writeText(place.textContent);
    announce("Copied.");
  } catch {
    getSelection().selectAllChildren(place);
    announce("Chosen: copy it with your keyboard.");
  }
}
