// A yes to more than one call says in words what it covers, before it can be given. The server writes the words, and
// takes a yes with these words only.
import { valuesOf, write } from "./forms.js";

const WAIT_MS = 250;
const due = new WeakMap();
const asked = new WeakMap();
const told = new WeakMap();

export function watchMeanings(root) {
  for (const kind of ["input", "change"]) {
    root.addEventListener(kind, (event) => {
      const form = event.target.closest?.("form[data-meaning]");
      if (form && event.target.name !== "meaning") later(form);
    });
  }
  root.addEventListener("palyra:refreshed", () => root.querySelectorAll("form[data-meaning]").forEach(renew));
  root.querySelectorAll("form[data-meaning]").forEach(renew);
}

// A form that was replaced has what the person typed, and no words yet.
function renew(form) {
  if (form.elements.scope.value !== "once" && !form.elements.meaning.value) later(form);
}

function later(form) {
  // A field that is left tells of its change once more: the words for it are there, or on their way.
  const chosen = JSON.stringify(["scope", "pattern", "ttl_seconds"].map((name) => form.elements[name].value));
  if (told.get(form) === chosen) return;
  told.set(form, chosen);
  clearTimeout(due.get(form));
  const isOnce = form.elements.scope.value === "once";
  say(form, "", isOnce);
  asked.delete(form);
  if (!isOnce) due.set(form, setTimeout(() => ask(form), WAIT_MS));
}

async function ask(form) {
  const mine = Symbol("question");
  asked.set(form, mine);
  let words = "";
  let problem = "";
  try {
    const { scope, pattern, ttl_seconds } = valuesOf(form);
    const { status, answer } = await write(form.dataset.meaning, "POST", { scope, pattern, ttl_seconds });
    if (status >= 400) problem = answer.detail ?? `the daemon answered ${status}`;
    else words = answer.data.meaning;
  } catch (error) {
    problem = error instanceof SyntaxError || error instanceof TypeError ? "The daemon did not answer." : error.message;
  }
  if (asked.get(form) === mine) say(form, words, Boolean(words), problem);
}

function say(form, words, mayApprove, problem = "") {
  const place = form.querySelector(".covers");
  form.elements.meaning.value = words;
  place.textContent = words ? `A yes covers: ${words}.` : problem;
  place.hidden = !place.textContent;
  form.querySelector("button[value=approve]").disabled = !mayApprove;
}
