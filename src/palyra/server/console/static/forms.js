// Every form with data-write sends JSON with the page's own token, and says what came of it where it stands.
import { refresh } from "./live.js";

const csrf = () => document.querySelector('meta[name="palyra-csrf"]')?.content ?? "";

export function watchForms(root) {
  root.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.dataset.write === undefined) return;
    event.preventDefault();
    send(form, event.submitter);
  });
}

async function send(form, submitter) {
  const buttons = [...form.querySelectorAll("button")];
  const problem = form.querySelector("[role=alert]");
  let body;
  try {
    body = valuesOf(form, submitter);
  } catch (error) {
    return tell(problem, error.message, "");
  }
  if (form.dataset.sure !== undefined && !confirm(form.dataset.sure)) return;
  buttons.forEach((button) => (button.disabled = true));
  tell(problem, "", "");
  try {
    const { status, answer } = await write(form.dataset.write, form.dataset.method ?? "POST", body);
    if (status === 401 && form.dataset.login === undefined) return void location.assign("/login");
    if (status >= 400) return tell(problem, answer.detail ?? `the daemon answered ${status}`, answer.hint ?? "");
    form.dispatchEvent(new CustomEvent("palyra:done", { bubbles: true, detail: answer.data }));
    if (form.dataset.then) return void location.assign(form.dataset.then);
    if (form.dataset.result) show(document.getElementById(form.dataset.result), answer.data.message);
    announce(submitter?.dataset.done ?? form.dataset.done ?? "Done.");
    if (form.dataset.keep === undefined) await refresh();
  } catch {
    tell(problem, "The daemon did not answer.", "See whether palyra up still runs, then try again.");
  } finally {
    buttons.forEach((button) => (button.disabled = false));
  }
}

export async function write(path, method, body) {
  const response = await fetch(path, {
    method,
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", "Palyra-Csrf": csrf(), "Idempotency-Key": newKey() },
    body: JSON.stringify(body),
  });
  return { status: response.status, answer: await response.json() };
}

// Empty fields are left out; data-as says what is not text.
export function valuesOf(form, submitter) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || field.tagName === "BUTTON") continue;
    if (field.offsetParent === null && field.type !== "hidden") continue;
    if (field.type === "checkbox" && field.dataset.as !== "list") body[field.name] = field.checked;
    else if (field.type === "checkbox" || field.type === "radio") {
      if (field.checked) body[field.name] = field.dataset.as === "list" ? [...(body[field.name] ?? []), field.value] : field.value;
    } else if (field.value !== "") body[field.name] = typed(field);
  }
  if (submitter?.name) body[submitter.name] = submitter.value;
  return body;
}

function typed(field) {
  if (field.dataset.as === "number") return Number(field.value);
  if (field.dataset.as !== "json") return field.value;
  try {
    return JSON.parse(field.value);
  } catch {
    throw new Error(`${field.labels?.[0]?.textContent.trim() ?? field.name}: this is not JSON`);
  }
}

function tell(place, message, hint) {
  if (!place) return;
  place.replaceChildren(...ticked(sentence(message)));
  place.hidden = !message;
  if (hint) {
    const more = document.createElement("span");
    more.className = "hint";
    more.replaceChildren(...ticked(sentence(hint)));
    place.append(" ", more);
  }
}

// What stands in backticks is code.
function ticked(text) {
  return text.split("`").map((part, at) => {
    if (at % 2 === 0) return part;
    const code = document.createElement("code");
    code.textContent = part;
    return code;
  });
}

function sentence(text) {
  if (!text) return "";
  // What begins with a name, such as that of a host, keeps it as it is.
  const begun = /^[a-z]+( |$)/.test(text) ? text[0].toUpperCase() + text.slice(1) : text;
  return /[.?!]$/.test(begun) ? begun : `${begun}.`;
}

function show(place, message) {
  place.textContent = message;
  place.hidden = false;
}

const SHOWN_MS = 5000;
let forgetting;

export function announce(text) {
  const place = document.getElementById("said");
  if (!place) return;
  place.textContent = text;
  clearTimeout(forgetting);
  forgetting = setTimeout(() => (place.textContent = ""), SHOWN_MS);
}

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
