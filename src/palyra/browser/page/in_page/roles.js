// The role of an element: what it says of itself, else what HTML gives it.
const KNOWN_ROLES = new Set(
  ("alert alertdialog application article banner blockquote button caption cell checkbox code columnheader combobox " +
    "complementary contentinfo definition deletion dialog directory document emphasis feed figure form grid gridcell " +
    "group heading img insertion link list listbox listitem log main marquee math menu menubar menuitem " +
    "menuitemcheckbox menuitemradio meter navigation note option paragraph progressbar radio radiogroup region row " +
    "rowgroup rowheader scrollbar search searchbox separator slider spinbutton status strong subscript superscript " +
    "switch tab table tablist tabpanel term textbox time timer toolbar tooltip tree treegrid treeitem").split(" "),
);
const INTERACTIVE = new Set(
  ("button checkbox combobox gridcell link listbox menuitem menuitemcheckbox menuitemradio option radio scrollbar " +
    "searchbox slider spinbutton switch tab textbox treeitem").split(" "),
);
const NATIVE = {
  article: "article", aside: "complementary", blockquote: "blockquote", button: "button", caption: "caption",
  code: "code", datalist: "listbox", dd: "definition", del: "deletion", details: "group", dfn: "term",
  dialog: "dialog", dt: "term", em: "emphasis", fieldset: "group", figure: "figure", frame: "iframe",
  hr: "separator", iframe: "iframe", ins: "insertion", li: "listitem", main: "main", math: "math", menu: "list",
  meter: "meter", nav: "navigation", ol: "list", optgroup: "group", option: "option", output: "status",
  p: "paragraph", progress: "progressbar", search: "search", strong: "strong", sub: "subscript", summary: "button",
  sup: "superscript", svg: "img", table: "table", tbody: "rowgroup", textarea: "textbox", tfoot: "rowgroup",
  thead: "rowgroup", time: "time", tr: "row", ul: "list",
};
const INPUTS = {
  button: "button", checkbox: "checkbox", color: "button", file: "button", hidden: "", image: "button",
  number: "spinbutton", radio: "radio", range: "slider", reset: "button", search: "searchbox", submit: "button",
};
const INLINE_ROLES = new Set(["code", "deletion", "emphasis", "insertion", "strong", "subscript", "superscript", "time"]);
const SECTIONING = "article, aside, main, nav, section, [role=article], [role=main], [role=region]";

function roleOf(element) {
  const said = attribute(element, "role");
  if (said) {
    for (const each of said.toLowerCase().split(/\s+/)) {
      if (KNOWN_ROLES.has(each)) return each;
      if (each === "image") return "img";
      if ((each === "none" || each === "presentation") && !focusable(element)) return "generic";
    }
  }
  const native = nativeRoleOf(element);
  if (native !== "generic") return native;
  return editingHost(element) ? "textbox" : "generic";
}

function nativeRoleOf(element) {
  const tag = localNameOf(element);
  switch (tag) {
    case "a":
    case "area":
      return hasAttribute(element, "href") ? "link" : "generic";
    case "h1": case "h2": case "h3": case "h4": case "h5": case "h6":
      return "heading";
    case "img":
      return attribute(element, "alt") === "" && !hasAttribute(element, "title") ? "generic" : "img";
    case "input":
      if (hasAttribute(element, "list") && ["text", "search", "email", "tel", "url"].includes(element.type)) return "combobox";
      return INPUTS[element.type] ?? "textbox";
    case "select":
      return element.multiple || element.size > 1 ? "listbox" : "combobox";
    case "th":
      return attribute(element, "scope") === "row" || attribute(element, "scope") === "rowgroup" ? "rowheader" : "columnheader";
    case "td": {
      const table = element.closest("table, [role=grid], [role=treegrid]");
      const role = table ? attribute(table, "role") : null;
      return role === "grid" || role === "treegrid" ? "gridcell" : "cell";
    }
    case "header":
      return element.closest(SECTIONING) ? "generic" : "banner";
    case "footer":
      return element.closest(SECTIONING) ? "generic" : "contentinfo";
    case "form":
      return ownLabel(element) ? "form" : "generic";
    case "section":
      return ownLabel(element) ? "region" : "generic";
    default:
      return NATIVE[tag] ?? "generic";
  }
}

const ownLabel = (element) =>
  hasAttribute(element, "aria-label") || hasAttribute(element, "aria-labelledby") || hasAttribute(element, "title");

const FOCUSABLE = "a[href], area[href], button, input, select, textarea, iframe, summary, [tabindex], [contenteditable]";
const focusable = (element) => matches(element, FOCUSABLE) && !matches(element, ":disabled");

function editingHost(element) {
  const said = attribute(element, "contenteditable");
  return said !== null && said !== "false" && element.isContentEditable;
}

// What no role says but what a person would press: a handler in the markup, a place in the tab order, a hand as cursor.
function clickable(element) {
  if (hasAttribute(element, "onclick")) return true;
  const tabindex = attribute(element, "tabindex");
  if (tabindex !== null && Number(tabindex) >= 0) return true;
  if (getComputedStyle(element).cursor !== "pointer") return false;
  const parent = composedParent(element);
  return !isElement(parent) || getComputedStyle(parent).cursor !== "pointer";
}

function disabled(element) {
  if (matches(element, ":disabled")) return true;
  for (const each of composedAncestors(element)) {
    if (isElement(each) && attribute(each, "aria-disabled") === "true") return true;
  }
  return false;
}

const secretField = (element) =>
  localNameOf(element) === "input" && (element.type === "password" || hiddenValues.has(element));
// Fields that a secret was typed into: their content is never reported, whatever the page makes of them.
const hiddenValues = new WeakSet();

function valueOf(element, role) {
  const tag = localNameOf(element);
  if (tag === "select") return Array.from(element.selectedOptions, (option) => plain(option.label)).join(", ");
  if (tag === "textarea") return hiddenValues.has(element) ? "" : element.value;
  if (tag === "input") {
    if (secretField(element) || INPUTS[element.type] === "button" || ["checkbox", "radio"].includes(element.type)) return "";
    return element.value;
  }
  if (tag === "progress" || tag === "meter") return String(element.value);
  if (["slider", "spinbutton", "progressbar", "meter", "scrollbar", "separator"].includes(role)) {
    return attribute(element, "aria-valuetext") ?? attribute(element, "aria-valuenow") ?? "";
  }
  return "";
}

const flag = (element, name) => {
  const said = attribute(element, name);
  return said === "true" || said === "false" || said === "mixed" ? said : "";
};

// Only what is not the ordinary case, in the order in which it is shown.
function statesOf(element, role) {
  const states = {};
  const tag = localNameOf(element);
  if (role === "heading") states.level = attribute(element, "aria-level") ?? (/^h[1-6]$/.test(tag) ? tag[1] : "2");
  else if (hasAttribute(element, "aria-level")) states.level = attribute(element, "aria-level");
  if (["checkbox", "radio", "switch", "menuitemcheckbox", "menuitemradio"].includes(role)) {
    const native = tag === "input" ? (element.indeterminate ? "mixed" : String(element.checked)) : "";
    const checked = native || flag(element, "aria-checked");
    if (checked !== "") states.checked = checked;
  }
  if (flag(element, "aria-pressed")) states.pressed = flag(element, "aria-pressed");
  const expanded = flag(element, "aria-expanded") || (tag === "summary" ? String(parentOf(element)?.open ?? false) : "");
  if (expanded) states.expanded = expanded;
  if (tag === "option" ? element.selected : flag(element, "aria-selected") === "true") states.selected = "true";
  const current = attribute(element, "aria-current");
  if (current && current !== "false") states.current = current;
  if (INTERACTIVE.has(role) || role === "group" || role === "generic") if (disabled(element)) states.disabled = "true";
  if (element.required === true || flag(element, "aria-required") === "true") states.required = "true";
  if (element.readOnly === true || flag(element, "aria-readonly") === "true") states.readonly = "true";
  const invalid = attribute(element, "aria-invalid");
  if (invalid && invalid !== "false") states.invalid = invalid;
  if (INTERACTIVE.has(role) || role === "progressbar" || role === "meter") {
    if (secretField(element)) {
      if (element.value) states.filled = "true";
    } else {
      const value = valueOf(element, role);
      if (value) states.value = value.slice(0, MAX_NAME);
    }
  }
  if (tag === "input" && element.type === "file") {
    states.file = Array.from(element.files, (file) => file.name).join(", ").slice(0, MAX_NAME) || "none";
  }
  return states;
}
