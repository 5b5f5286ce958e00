// How the page's tree is read. A form's own fields may hide any property of it (`<input name="parentNode">`), so
// everything that matters is read through the prototypes' getters, which a page cannot replace in our world.
const reader = (type, key) => {
  const getter = Object.getOwnPropertyDescriptor(type.prototype, key).get;
  return (node) => getter.call(node);
};
const parentOf = reader(Node, "parentNode");
const firstChildOf = reader(Node, "firstChild");
const nextOf = reader(Node, "nextSibling");
const typeOf = reader(Node, "nodeType");
const connected = reader(Node, "isConnected");
const localNameOf = reader(Element, "localName");
const openShadowOf = reader(Element, "shadowRoot");
const slotOf = reader(Element, "assignedSlot");
const hostOf = reader(ShadowRoot, "host");
const focusIn = { document: reader(Document, "activeElement"), shadow: reader(ShadowRoot, "activeElement") };
const rootNodeOf = (node) => Node.prototype.getRootNode.call(node);
const attribute = (element, name) => Element.prototype.getAttribute.call(element, name);
const hasAttribute = (element, name) => Element.prototype.hasAttribute.call(element, name);
const matches = (element, css) => Element.prototype.matches.call(element, css);
const boxOf = (element) => Element.prototype.getBoundingClientRect.call(element);
const boxesOf = (element) => Element.prototype.getClientRects.call(element);
const top_ = () => reader(Document, "documentElement")(document);

const isElement = (node) => node !== null && node !== undefined && typeOf(node) === 1;

// The parent as it is drawn: out of a slot, and out of a shadow root to its host.
function composedParent(node) {
  const slot = isElement(node) ? slotOf(node) : null;
  if (slot) return slot;
  const parent = parentOf(node);
  return parent instanceof ShadowRoot ? hostOf(parent) : parent;
}

function* composedAncestors(node) {
  for (let at = node; at; at = composedParent(at)) yield at;
}

function* childrenOf(element) {
  const shadow = isElement(element) ? openShadowOf(element) : null;
  if (element instanceof HTMLSlotElement) {
    const given = element.assignedNodes();
    if (given.length) {
      yield* given;
      return;
    }
  }
  const closed = element instanceof HTMLDetailsElement && !element.open;
  for (let child = firstChildOf(shadow ?? element); child; child = nextOf(child)) {
    if (!closed || (isElement(child) && localNameOf(child) === "summary")) yield child;
  }
}

// Every open root of the document, and every element of each, in order.
function* rootsOf(root) {
  yield root;
  for (const element of root.querySelectorAll("*")) {
    const shadow = openShadowOf(element);
    if (shadow) yield* rootsOf(shadow);
  }
}

// Each element has one number for as long as its document lives; numbers are never given twice.
let lastNumber = 0;
const numbers = new WeakMap();
const held = new Map();
const collected = new FinalizationRegistry((number) => held.delete(number));

function numberOf(element) {
  let number = numbers.get(element);
  if (number === undefined) {
    number = ++lastNumber;
    numbers.set(element, number);
    held.set(number, new WeakRef(element));
    collected.register(element, number);
  }
  return number;
}

const elementOf = (number) => held.get(number)?.deref();

const WITHOUT_TEXT = new Set(["input", "select", "textarea"]);

// Drawn at all: not display none, not visibility hidden, not transparent, not of no size, not hidden from readers.
function drawn(element) {
  const options = { visibilityProperty: true, opacityProperty: !controlWithoutText(element) };
  return Element.prototype.checkVisibility.call(element, options);
}

// A transparent check box or file field over a drawn one is how many pages style them; it hides no text.
function controlWithoutText(element) {
  if (localNameOf(element) !== "input") return false;
  return ["checkbox", "radio", "file"].includes(element.type);
}

function hasSize(element) {
  const box = boxOf(element);
  return box.width > 0 && box.height > 0;
}

function hiddenFromReaders(element) {
  for (const each of composedAncestors(element)) {
    if (isElement(each) && attribute(each, "aria-hidden") === "true") return true;
  }
  return false;
}

const inert = (element) => matches(element, "[inert], [inert] *");

// Why an element cannot be seen, or an empty text.
function whyHidden(element) {
  if (!drawn(element)) return "it is not drawn";
  if (!hasSize(element)) return "it has no size";
  if (hiddenFromReaders(element)) return "it is marked aria-hidden";
  return "";
}

// The time of the next frame that is drawn. Chromium draws none of a document that is out of sight: then 0, later.
const UNSEEN_MS = 100;
const nextFrame = () =>
  new Promise((resolve) => {
    const later = setTimeout(() => resolve(0), UNSEEN_MS);
    requestAnimationFrame((time) => {
      clearTimeout(later);
      resolve(time);
    });
  });

const plain = (text) => text.replace(/[\s\u200b\u00ad\ufeff]+/g, " ").trim();
