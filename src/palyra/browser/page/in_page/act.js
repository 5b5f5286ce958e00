// Whether an element can be acted on, waited for frame by frame, and what is done to it that is no input event.
// The parts of the window in which an element is drawn, the largest first.
function shownBoxes(element) {
  const boxes = [];
  for (const box of boxesOf(element)) {
    const left = Math.max(box.left, 0);
    const right = Math.min(box.right, innerWidth);
    const top = Math.max(box.top, 0);
    const bottom = Math.min(box.bottom, innerHeight);
    if (right - left >= 1 && bottom - top >= 1) boxes.push({ left, right, top, bottom, area: (right - left) * (bottom - top) });
  }
  return boxes.sort((one, other) => other.area - one.area);
}

const SPOTS = [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.25], [0.5, 0.75]];

// A point at which the element itself would be hit, or what is hit instead.
function pointOf(element) {
  const boxes = shownBoxes(element);
  if (boxes.length === 0) return { problem: "outside" };
  let cover = null;
  for (const [across, down] of SPOTS) {
    const x = boxes[0].left + (boxes[0].right - boxes[0].left) * across;
    const y = boxes[0].top + (boxes[0].bottom - boxes[0].top) * down;
    const hit = deepestAt(x, y);
    if (hit && within(element, hit)) return { x, y };
    cover ??= hit;
  }
  return { problem: "covered", by: cover };
}

// Where the mouse may go while it is seen whether the element is at rest.
function aimAt(element) {
  const point = pointOf(element);
  return point.problem ? null : point;
}

const aim = (number) => {
  const element = elementOf(number);
  return element && connected(element) ? aimAt(element) : null;
};

// What a person would call the thing that is in the way.
function coverOf(hit) {
  if (!isElement(hit)) return null;
  for (const each of composedAncestors(hit)) {
    if (isElement(each) && ["dialog", "alertdialog", "banner", "navigation", "menu", "alert"].includes(roleOf(each))) {
      return described(each);
    }
  }
  return described(hit);
}

const sameBox = (one, other) =>
  one.left === other.left && one.top === other.top && one.width === other.width && one.height === other.height;

// What began to move so lately is in no frame yet.
const SETTING_OUT_MS = 34;
// What turns, or goes in steps, may be at one place in two frames, most of all where frames were left out between them.
const FRAMES_BESIDE_ANIMATION = 2;

// Whether it may be moving although so many frames before this one have drawn it where it is now, in a row.
function restless(element, frames) {
  if (frames === 0) return true;
  const around = document.getAnimations().filter((each) => {
    const moved = each.playState === "running" ? each.effect?.target : null;
    return moved instanceof Element && within(moved, element);
  });
  if (around.some((each) => each.currentTime < SETTING_OUT_MS)) return true;
  return around.length > 0 && frames < FRAMES_BESIDE_ANIMATION;
}

const NOT_TYPED = new Set(["button", "checkbox", "file", "hidden", "image", "radio", "reset", "submit"]);

function editable(element) {
  const tag = localNameOf(element);
  if (tag === "textarea") return !element.readOnly;
  if (tag === "input") return !NOT_TYPED.has(element.type) && !element.readOnly;
  return element.isContentEditable;
}

// spec: {number, role, name, needs: {seen, enabled, editable, hit, still}, milliseconds, arm, typing: {clear, secret}}
async function ready(spec) {
  const until = performance.now() + spec.milliseconds;
  // Where it was in how many frames before: it is at rest when two frames have drawn it at one place, or three where
  // something moves, it or around it.
  let before = null;
  let frame = document.timeline.currentTime ?? 0;
  let scrolled = false;
  for (;;) {
    const was = changed(spec.number, spec.role, spec.name);
    if (was !== null) return { problem: "stale", ...was };
    const element = elementOf(spec.number);
    const outcome = look(element, spec.needs, before?.frame < frame ? before : null);
    if (outcome.problem === "outside" && !scrolled) {
      scrolled = true;
      element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
      before = null;
    } else if (!outcome.problem) {
      if (spec.arm) arm({ ...spec.arm, number: spec.number, role: spec.role, name: spec.name });
      if (spec.typing) outcome.typing = beginTyping(element, spec.typing.clear, spec.typing.secret);
      return outcome;
    } else {
      if (outcome.problem === "covered" && performance.now() > until) return { problem: "covered", by: coverOf(outcome.by) };
      // What can never be typed into is not waited for.
      if (outcome.problem === "readonly" && !element.readOnly) return outcome;
      scrolled = scrolled && outcome.problem !== "covered";
      if (performance.now() > until) return outcome;
      if (frame !== 0) before = { frame, box: outcome.box, frames: framesThere(before, frame, outcome.box) };
    }
    frame = await nextFrame();
  }
}

// In how many frames, up to this one, it was at one place.
function framesThere(before, frame, box) {
  if (before === null || !sameBox(before.box, box)) return 1;
  return before.frame < frame ? before.frames + 1 : before.frames;
}

function look(element, needs, before) {
  const box = boxOf(element);
  const outcome = { box };
  if (needs.seen) {
    const why = whyHidden(element);
    if (why && !(why === "it is marked aria-hidden")) return { problem: "hidden", why, box };
  }
  if (needs.enabled && (disabled(element) || inert(element))) return { problem: "disabled", box };
  if (needs.editable && !editable(element)) return { problem: "readonly", tag: localNameOf(element), box };
  const rested = before !== null && sameBox(before.box, box) ? before.frames : 0;
  if (needs.still && restless(element, rested)) return { problem: "moving", box };
  if (needs.hit) {
    const point = pointOf(element);
    if (point.problem) return { ...point, box };
    Object.assign(outcome, { x: point.x, y: point.y });
  }
  outcome.box = { x: box.x, y: box.y, width: box.width, height: box.height };
  return outcome;
}

// Whether a point of this window, where a frame is, would hit that frame.
function frameHit(number, x, y) {
  const owner = elementOf(number);
  if (!owner || !connected(owner)) return { problem: "removed" };
  const at = placeIn(owner, x, y);
  const hit = deepestAt(at.x, at.y);
  return hit === owner ? at : { ...at, problem: "covered", by: coverOf(hit) };
}

// Where a point of a frame's window lies in ours.
function placeIn(owner, x, y) {
  const box = boxOf(owner);
  const style = getComputedStyle(owner);
  const scaleX = owner.offsetWidth ? box.width / owner.offsetWidth : 1;
  const scaleY = owner.offsetHeight ? box.height / owner.offsetHeight : 1;
  const left = owner.clientLeft + parseFloat(style.paddingLeft);
  const top = owner.clientTop + parseFloat(style.paddingTop);
  return { x: box.left + (left + x) * scaleX, y: box.top + (top + y) * scaleY };
}

// `unseen`: only if nothing of it is in the window.
function showFrame(number, unseen) {
  const owner = elementOf(number);
  if (!owner || !connected(owner)) return null;
  if (unseen && shownBoxes(owner).length > 0) return true;
  owner.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  return true;
}

function deepFocus() {
  let at = focusIn.document(document);
  while (at && openShadowOf(at) && focusIn.shadow(openShadowOf(at))) at = focusIn.shadow(openShadowOf(at));
  return at;
}

const SET_BY_VALUE = new Set(["color", "date", "datetime-local", "month", "range", "time", "week"]);

// Gives it the focus and selects what it holds. What cannot be typed at all is set, as a person would with a picker.
function beginTyping(element, clear, secret) {
  if (localNameOf(element) === "input" && SET_BY_VALUE.has(element.type)) return { set: true };
  element.focus({ preventScroll: true });
  const focus = deepFocus();
  if (focus !== element && !(element.isContentEditable && focus && within(focus, element))) {
    return { problem: "no focus" };
  }
  if (secret) hideValue(element);
  const field = localNameOf(element) === "input" || localNameOf(element) === "textarea";
  if (field) {
    if (clear) element.select();
    else if (element.selectionEnd !== null) element.setSelectionRange(element.value.length, element.value.length);
    return { holds: element.value.length > 0 };
  }
  const range = document.createRange();
  range.selectNodeContents(element);
  if (!clear) range.collapse(false);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  return { holds: element.textContent.length > 0 };
}

// A secret in a field that shows its text would be in every picture of the page.
function hideValue(element) {
  hiddenValues.add(element);
  element.style?.setProperty("-webkit-text-security", "disc", "important");
}

function setValue(number, text) {
  const element = elementOf(number);
  const before = element.value;
  element.focus({ preventScroll: true });
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(element, text);
  if (element.value !== text && element.type !== "range" && element.type !== "color") {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(element, before);
    return { problem: element.type };
  }
  element.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
  element.dispatchEvent(new Event("change", { bubbles: true }));
  return {};
}

function giveFocus(number) {
  const element = elementOf(number);
  element.focus({ preventScroll: true });
  const focus = deepFocus();
  return focus === element || (focus !== null && within(element, focus));
}

function choose(number, wanted) {
  const select = elementOf(number);
  if (localNameOf(select) !== "select") return { problem: "not a select" };
  const options = Array.from(select.options);
  const chosen = [];
  for (const each of wanted) {
    const label = plain(each);
    const option = options.find((one) => one.value === each) ?? options.find((one) => plain(one.label) === label);
    if (!option) return { problem: "no option", wanted: each, options: options.slice(0, MAX_OPTIONS).map((one) => plain(one.label)) };
    if (option.disabled || option.closest("optgroup")?.disabled) return { problem: "disabled option", wanted: each };
    chosen.push(option);
  }
  if (!select.multiple && chosen.length !== 1) return { problem: "one option" };
  select.focus({ preventScroll: true });
  let differs = false;
  for (const option of options) {
    const on = chosen.includes(option);
    if (option.selected !== on) differs = true;
    option.selected = on;
  }
  if (differs) {
    select.dispatchEvent(new Event("input", { bubbles: true, composed: true }));
    select.dispatchEvent(new Event("change", { bubbles: true }));
  }
  return {};
}

function fileField(number) {
  const element = elementOf(number);
  if (localNameOf(element) === "input" && element.type === "file") return element;
  const control = element instanceof HTMLLabelElement ? element.control : null;
  return control && control.type === "file" ? control : null;
}

// Scrolls the nearest thing around the element, or the page, that can move that way. Says whether anything did.
function scrollBy_(number, dx, dy) {
  const from = number === 0 ? null : elementOf(number);
  for (const each of from ? composedAncestors(from) : []) {
    if (!isElement(each)) continue;
    if (moved(each, dx, dy)) return true;
  }
  return moved(document.scrollingElement ?? top_(), dx, dy);
}

function moved(element, dx, dy) {
  if (element !== document.scrollingElement) {
    const { overflowX, overflowY } = getComputedStyle(element);
    const rolls = (overflow) => overflow === "auto" || overflow === "scroll" || overflow === "hidden";
    if (!((dx && rolls(overflowX)) || (dy && rolls(overflowY)))) return false;
  }
  const { scrollLeft, scrollTop } = element;
  element.scrollBy({ left: dx, top: dy, behavior: "instant" });
  return element.scrollLeft !== scrollLeft || element.scrollTop !== scrollTop;
}

function showElement(number) {
  elementOf(number).scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  return true;
}

const pageSize = () => {
  const { scrollWidth, scrollHeight } = document.scrollingElement ?? top_();
  return { width: scrollWidth, height: scrollHeight, left: scrollX, top: scrollY, view: [innerWidth, innerHeight] };
};

const boxNow = (number) => {
  const element = elementOf(number);
  if (!element || !connected(element)) return null;
  const box = boxOf(element);
  return { x: box.x, y: box.y, width: box.width, height: box.height };
};

const originNow = () => self.origin;
