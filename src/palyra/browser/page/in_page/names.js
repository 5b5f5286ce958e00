// The accessible name, after the W3C's rules: labelled by, label, the element's own words, content, title, placeholder.
const MAX_NAME = 1000;
const FROM_CONTENT = new Set(
  ("button cell checkbox columnheader gridcell heading link menuitem menuitemcheckbox menuitemradio option radio " +
    "rowheader switch tab tooltip treeitem summary").split(" "),
);
const INLINE = new Set(
  ("a abbr b bdi bdo cite code data dfn em font i kbd label mark q s samp slot small span strong sub sup time u var " +
    "wbr").split(" "),
);

function nameOf(element, role = roleOf(element)) {
  return plain(rawName(element, role, new Set(), { content: FROM_CONTENT.has(role) })).slice(0, MAX_NAME);
}

function rawName(element, role, seen, { content = false, referred = false, inside = false }) {
  if (seen.has(element)) return "";
  seen.add(element);
  if (!referred && hasAttribute(element, "aria-labelledby")) {
    const root = rootNodeOf(element);
    const named = [];
    for (const id of attribute(element, "aria-labelledby").split(/\s+/)) {
      const other = id && root.getElementById ? root.getElementById(id) : null;
      // An element may name itself among others: then by its own label.
      if (other) named.push(rawName(other, roleOf(other), other === element ? new Set() : seen, { content: true, referred: true }));
    }
    if (plain(named.join(" "))) return named.join(" ");
  }
  if (inside && role !== "generic") {
    const value = innerValue(element, role);
    if (value !== null) return value;
  }
  const label = attribute(element, "aria-label");
  if (label && plain(label)) return label;
  const own = ownName(element, role, seen);
  if (plain(own)) return own;
  if (content || inside || referred) {
    const text = contentName(element, seen);
    if (plain(text)) return text;
  }
  const title = attribute(element, "title");
  if (title && plain(title)) return title;
  if (["textbox", "searchbox", "combobox", "spinbutton"].includes(role)) {
    return attribute(element, "placeholder") ?? attribute(element, "aria-placeholder") ?? "";
  }
  return "";
}

// A field within a label counts with what it holds.
function innerValue(element, role) {
  if (["textbox", "searchbox", "combobox", "listbox", "slider", "spinbutton", "progressbar"].includes(role)) {
    return secretField(element) ? "" : valueOf(element, role);
  }
  return null;
}

function ownName(element, role, seen) {
  const tag = localNameOf(element);
  if (tag === "input") {
    if (["submit", "reset", "button"].includes(element.type)) {
      return element.value || { submit: "Submit", reset: "Reset", button: "" }[element.type];
    }
    if (element.type === "image") return attribute(element, "alt") ?? attribute(element, "value") ?? "Submit";
  }
  if (["input", "select", "textarea", "button", "meter", "output", "progress"].includes(tag)) {
    const labels = Array.from(element.labels ?? [], (label) => rawName(label, "generic", seen, { inside: true }));
    if (labels.length) return labels.join(" ");
    if (tag === "input" && element.type === "file") return "Choose file";
  }
  if (tag === "img" || tag === "area") return attribute(element, "alt") ?? "";
  if (tag === "optgroup" || tag === "option") return attribute(element, "label") ?? "";
  const inner = { fieldset: "legend", table: "caption", figure: "figcaption", svg: "title" }[tag];
  if (inner) {
    for (const child of childrenOf(element)) {
      if (isElement(child) && localNameOf(child) === inner) {
        return inner === "title" ? child.textContent : rawName(child, "generic", seen, { content: true, inside: true });
      }
    }
  }
  return "";
}

function contentName(element, seen) {
  let text = "";
  for (const child of childrenOf(element)) {
    if (text.length > MAX_NAME) break;
    if (typeOf(child) === 3) {
      text += child.data;
    } else if (isElement(child)) {
      const tag = localNameOf(child);
      if (["script", "style", "template", "noscript"].includes(tag)) continue;
      if (attribute(child, "aria-hidden") === "true") continue;
      if (tag !== "slot" && tag !== "option" && !Element.prototype.checkVisibility.call(child, { visibilityProperty: true })) {
        if (getComputedStyle(child).display !== "contents") continue;
      }
      const part = rawName(child, roleOf(child), seen, { inside: true });
      text += INLINE.has(tag) ? part : ` ${part} `;
    }
  }
  return text;
}

const CONTAINERS = new Set(
  ("alertdialog application article banner complementary contentinfo dialog feed form grid group iframe list listbox " +
    "log main menu menubar navigation radiogroup region rowgroup search table tablist tabpanel toolbar tree treegrid")
    .split(" "),
);

// What a ref is bound to besides the element itself. What has no name of its own goes by its content.
function identityOf(element, role = roleOf(element)) {
  const name = nameOf(element, role);
  if (name || FROM_CONTENT.has(role) || CONTAINERS.has(role)) return { role, name };
  if (["textbox", "searchbox", "combobox", "spinbutton", "slider"].includes(role)) return { role, name };
  return { role, name: plain(contentName(element, new Set([element]))).slice(0, MAX_NAME) };
}
