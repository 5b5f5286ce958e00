// News from the daemon. When something happened that this page shows, the page is fetched anew and what changed in it
// is replaced, piece by piece: what a person types into a piece that stays the same stays too.
import { say } from "./times.js";

const GATHER_MS = 150;
// A request that came under the pointer takes no click for so long: the person aimed at what was there before.
const SETTLE_MS = 700;
const MOVED_PIXELS = 4;
const EVERY = "[data-region]";
// No content: what the page shows was removed, or is over.
const GONE = 204;
// What the numbers in the menu are made of: they are right on every page.
const WAITING = ["approval.", "pairing.", "skill."];
const html = window.trustedTypes
  ? trustedTypes.createPolicy("palyra", { createHTML: (text) => text })
  : { createHTML: (text) => text };
// Each piece as the server sent it, to tell whether it changed.
const sent = new WeakMap();
const settling = new WeakMap();
let stream;
let due;
let wanted = "";
let fetching;
// Where the page is fetched from: the page above it, for the menu's sake, once there is nothing more to say about its own.
let source = location.href;

export function listen() {
  for (const region of regions(document)) remember(region);
  open();
  document.addEventListener("palyra:gone", () => {
    source = document.querySelector("#menu [aria-current=page]")?.href ?? "/";
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return close();
    open();
    refresh();
  });
}

function open() {
  if (stream || document.hidden) return;
  stream = new EventSource("/console/v1/events");
  stream.addEventListener("ready", () => light("on"));
  stream.addEventListener("news", (event) => {
    const said = JSON.parse(event.data);
    if (concerns(said, document.body.dataset.live.split(" "))) soon();
    else if (concerns(said, WAITING)) soon("#menu");
  });
  stream.addEventListener("over", () => location.assign("/login"));
  stream.addEventListener("stopping", () => light("off"));
  stream.onerror = () => light("off");
}

function close() {
  stream?.close();
  stream = undefined;
}

function concerns(said, starts) {
  if (said.kind === "lost") return true;
  return starts.some((start) => start && said.kind.startsWith(start));
}

function light(state) {
  const lamp = document.querySelector("[data-lamp]");
  if (!lamp) return;
  if (state === "on" && lamp.dataset.lamp === "off") refresh();
  lamp.dataset.lamp = state;
  lamp.textContent = state === "on" ? "live" : "not connected";
}

function soon(which = EVERY) {
  wanted = wanted === EVERY ? EVERY : which;
  due ??= setTimeout(() => {
    due = undefined;
    refresh(wanted);
    wanted = "";
  }, GATHER_MS);
}

export async function refresh(which = EVERY) {
  // What happens while a fetch is under way is seen by the next one.
  if (fetching) return soon(which);
  fetching = true;
  try {
    const response = await fetch(source, {
      credentials: "same-origin",
      headers: { Accept: "text/html", "Palyra-Live": "1" },
    });
    if (response.redirected && new URL(response.url).pathname === "/login") return void location.assign("/login");
    if (!response.ok) return;
    if (response.status === GONE) return void document.dispatchEvent(new CustomEvent("palyra:gone"));
    const page = new DOMParser().parseFromString(html.createHTML(await response.text()), "text/html");
    for (const region of document.querySelectorAll(source === location.href ? which : "#menu")) {
      const fresh = page.getElementById(region.id);
      if (fresh) replace(region, fresh);
    }
    document.dispatchEvent(new CustomEvent("palyra:refreshed"));
  } catch {
    light("off");
  } finally {
    fetching = false;
  }
}

const regions = (root) => root.querySelectorAll(EVERY);

function remember(region) {
  sent.set(region, region.innerHTML);
  for (const piece of region.children) sent.set(piece, piece.outerHTML);
}

function replace(region, fresh) {
  if (sent.get(region) === fresh.innerHTML) return;
  sent.set(region, fresh.innerHTML);
  const old = new Map([...region.children].map((piece) => [piece.dataset.key ?? "", piece]));
  const tops = new Map([...region.children].map((piece) => [piece.dataset.key ?? "", topOf(piece)]));
  const next = [...fresh.children].map((piece) => {
    const kept = old.get(piece.dataset.key ?? "");
    const text = piece.outerHTML;
    if (kept && sent.get(kept) === text) return kept;
    const made = document.importNode(piece, true);
    if (kept) carryOver(kept, made);
    sent.set(made, text);
    say(made);
    return made;
  });
  const focused = document.activeElement;
  const place = placeOf(focused, region);
  const selection = [focused.selectionStart, focused.selectionEnd];
  // Moving a node that stays would take the focus from it: only what differs is touched.
  next.forEach((piece, at) => {
    if (region.children[at] !== piece) region.insertBefore(piece, region.children[at] ?? null);
  });
  while (region.children.length > next.length) region.lastElementChild.remove();
  for (const piece of region.querySelectorAll(":scope > .request")) {
    const before = tops.get(piece.dataset.key);
    if (before === undefined || Math.abs(topOf(piece) - before) > MOVED_PIXELS) settle(piece);
  }
  if (!place || focused.isConnected) return;
  const again = foundAgain(region, place);
  again?.focus({ preventScroll: true });
  if (Number.isInteger(selection[0]) && again?.setSelectionRange) again.setSelectionRange(...selection);
}

const topOf = (piece) => piece.getBoundingClientRect().top;

function settle(piece) {
  clearTimeout(settling.get(piece));
  piece.classList.add("settling");
  settling.set(piece, setTimeout(() => piece.classList.remove("settling"), SETTLE_MS));
}

// Where a person is who uses no pointer: by what the element does, never by its place alone. A row that comes in above
// must not put somebody on the button of another row.
const REACHED = "a[href], button, input, select, textarea, summary, [tabindex]";

function placeOf(element, region) {
  const piece = [...region.children].find((each) => each.contains(element));
  const deed = deedOf(element);
  return piece && { key: piece.dataset.key, deed, at: alike(piece, deed).indexOf(element) };
}

function foundAgain(region, { key, deed, at }) {
  const piece = [...region.children].find((each) => each.dataset.key === key);
  return piece && alike(piece, deed)[at];
}

const alike = (piece, deed) =>
  [piece, ...piece.querySelectorAll(REACHED)].filter((each) => each.matches(REACHED) && deedOf(each) === deed);

function deedOf(element) {
  const words = element.matches("a, button, summary") ? element.textContent.trim() : "";
  const { tagName, id, name, type } = element;
  const button = tagName === "BUTTON" ? element.value : "";
  return JSON.stringify([tagName, id, name, type, element.getAttribute("href"), button, element.form?.dataset.write, words]);
}

// What a person opened and typed in a piece that is replaced.
function carryOver(old, made) {
  const twin = (node) => made.querySelector(`#${CSS.escape(node.id)}`);
  for (const open of old.querySelectorAll("details[open][id]")) twin(open)?.setAttribute("open", "");
  for (const field of old.querySelectorAll("input[id], textarea[id], select[id]")) {
    const next = twin(field);
    if (!next || next.type !== field.type) continue;
    if (field.type === "checkbox" || field.type === "radio") next.checked = field.checked;
    else next.value = field.value;
  }
}
