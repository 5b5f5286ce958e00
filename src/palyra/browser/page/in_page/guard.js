// Stands before the page at every input event while we act: an event that does not reach the very element it was
// meant for, as it was when it was looked at, reaches nobody. Its listeners came with the document (early.js), so that
// no script of the page's hears an event before it was judged.
let armed = null;
const GUARD_MS = 30000;

// Why an element is not what it was bound to, or null. `change` names what changed.
function changed(number, role, name) {
  const element = elementOf(number);
  if (!element || !connected(element)) return { change: "removed" };
  const now = identityOf(element);
  if (now.role !== role) return { change: "role", now: now.role, number };
  if (now.name !== name) return { change: "name", now: now.name, number };
  return null;
}

function within(element, node) {
  for (const each of composedAncestors(node)) {
    if (each === element) return true;
    if (each instanceof HTMLLabelElement && each.control === element) return true;
  }
  return false;
}

// The deepest element at a point, through open shadow roots.
function deepestAt(x, y) {
  let root = document;
  for (;;) {
    const found = root.elementFromPoint(x, y);
    const shadow = found ? openShadowOf(found) : null;
    if (!shadow || shadow.elementFromPoint(x, y) === null || shadow.elementFromPoint(x, y) === found) return found;
    root = shadow;
  }
}

function targetOf(event) {
  const first = event.composedPath()[0];
  return first instanceof Node ? first : null;
}

const { MOUSE, MOVES, DRAG, KEYS } = hold;
const RELEASES = new Set(["pointerup", "mouseup", "click"]);

// spec: {kind: "mouse" | "keys" | "hover" | "nothing", number, role, name, last: [types], to, leaves}
function arm(spec) {
  armed = { ...spec, seen: [], failed: null, captured: null, drags: false, until: performance.now() + GUARD_MS };
  return true;
}

// Chromium reports what the input began before the answer to this call: a navigation when it is requested, not when it
// starts. (A task of its own would not do: Chromium puts those off after an input until a frame was drawn.)
function disarm() {
  const was = armed;
  armed = null;
  return was === null ? null : { seen: was.seen, failed: was.failed };
}

function judge(event) {
  if (armed === null || !event.isTrusted) return;
  if (performance.now() > armed.until) {
    armed = null;
    return;
  }
  if (MOVES.includes(event.type)) {
    // One that only moves presses nothing, and Chromium makes such events itself when things move beneath the mouse.
    // What it shows while it is there may well be part of its name.
    const element = elementOf(armed.number);
    if (armed.kind === "hover" && element && within(element, targetOf(event))) armed.seen.push(event.type);
    return;
  }
  const mouse = MOUSE.includes(event.type);
  if (armed.kind === "keys" ? mouse : armed.kind !== "nothing" && KEYS.includes(event.type)) return;
  // What follows the last event is the page's own answer to it.
  if (armed.over) return;
  const problem = armed.failed ?? problemWith(event);
  if (problem !== null) {
    armed.failed = problem;
    event.stopImmediatePropagation();
    event.preventDefault();
    return;
  }
  armed.seen.push(event.type);
  if (armed.last?.includes(event.type)) armed.over = true;
}

function problemWith(event) {
  if (armed.kind === "nothing") return { change: "elsewhere", at: event.type };
  const dropped = armed.to && (DRAG.includes(event.type) || RELEASES.has(event.type));
  if (armed.leaves && RELEASES.has(event.type)) return null;
  const bound = dropped ? armed.to : armed;
  if (dropped && event.type !== "drop" && event.type !== "mouseup" && event.type !== "pointerup") return null;
  // A page may take the source of a drag away while it is dragged.
  const was = changed(bound.number, bound.role, bound.name);
  if (was !== null) return { ...was, at: event.type };
  const element = elementOf(bound.number);
  const target = targetOf(event);
  if (target !== null && within(element, target)) return null;
  if (target !== null && armed.captured === target && RELEASES.has(event.type)) return null;
  if (armed.kind === "keys" && target !== null && element.isContentEditable && within(target, element)) return null;
  const over = isElement(target) ? described(target) : null;
  return { change: "elsewhere", at: event.type, over };
}

hold.judge = judge;
hold.captured = (event) => {
  // Taken by the page in its own answer to our press, by something around the element.
  const target = targetOf(event);
  if (armed?.seen.includes("pointerdown") && isElement(target)) {
    const element = elementOf(armed.number);
    if (element && within(target, element)) armed.captured = target;
  }
};
hold.dragged = (event) => {
  const now = armed;
  // Whether the page refused it is known when all of its listeners have run.
  if (now !== null && event.isTrusted) setTimeout(() => { now.drags = !event.defaultPrevented; });
};

// Whether the browser's own kind of dragging began.
const dragging = () => new Promise((resolve) => setTimeout(() => resolve(armed !== null && armed.drags)));
