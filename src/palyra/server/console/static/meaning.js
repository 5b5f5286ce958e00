// Shows in words what an approval of more than one call covers, before it can be given. The server writes the words, and
// accepts such an approval only with them.
import { valuesOf, write } from "./forms.js";

const WAIT_MS = 250;
const due = new WeakMap();
const newestQuestion = new WeakMap();
const shownChoice = new WeakMap();

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
  // A field that loses the focus reports its change again. Its words are there already, or on their way.
  const chosen = JSON.stringify(["scope", "pattern", "ttl_seconds"].map((name) => form.elements[name].value));
  if (shownChoice.get(form) === chosen) return;
  shownChoice.set(form, chosen);
  clearTimeout(due.get(form));
  const isOnce = form.elements.scope.value === "once";
  say(form, "", isOnce);
  newestQuestion.delete(form);
  if (!isOnce) due.set(form, setTimeout(() => ask(form), WAIT_MS));
}

async function ask(form) {
  const mine = Symbol("question");
  newestQuestion.set(form, mine);
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
  if (newestQuestion.get(form) === mine) say(form, words, Boolean(words), problem);
}

function say(form, words, mayApprove, problem = "") {
  const place = form.querySelector(".covers");
  form.elements.meaning.value = words;
  place.textContent = words ? `This approval covers: ${words}.` : problem;
  place.hidden = !place.textContent;
  form.querySelector("button[value=approve]").disabled = !mayApprove;
}
