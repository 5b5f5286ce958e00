// Reads the page into rows, parents before children: [parent's row, number, role, name, states].
// A text is a row of the role "text". Elements that mean nothing by themselves are left out, their children are not.
const TEXT = "text";
const SKIPPED = new Set(["script", "style", "template", "noscript", "head", "title", "meta", "link", "source", "track"]);
const NAMED = new Set(
  ("alert alertdialog application article banner complementary contentinfo dialog feed figure form grid group iframe " +
    "img list listbox log main menu menubar meter navigation note progressbar radiogroup region search separator status " +
    "table tablist tabpanel timer toolbar tree treegrid").split(" "),
);
const MAX_OPTIONS = 25;

function walk(from, limits) {
  const rows = [];
  const started = performance.now();
  let left = 0;
  let visited = 0;
  let labelled = 0;

  function add(parent, number, role, name, states) {
    rows.push([parent, number, role, name, states]);
    return rows.length - 1;
  }

  function addText(parent, node, apart) {
    const text = node.data;
    if (labelled > 0) return true;
    if (!/\S/.test(text)) return apart || /\s/.test(text);
    const last = rows[rows.length - 1];
    const words = text.replace(/\s+/g, " ");
    if (last && last[2] === TEXT && last[0] === parent) last[3] = (last[3] + (apart ? " " : "") + words).slice(0, MAX_NAME);
    else add(parent, 0, TEXT, words.slice(0, MAX_NAME), null);
    return false;
  }

  // Says whether what comes next stands apart from what was before.
  function visit(node, parent, apart) {
    if (typeOf(node) === 3) return addText(parent, node, apart);
    if (!isElement(node)) return apart;
    const tag = localNameOf(node);
    if (SKIPPED.has(tag)) return apart;
    if (attribute(node, "aria-hidden") === "true") return apart;
    visited += 1;
    if (rows.length >= limits.rows || (visited % 64 === 0 && performance.now() - started > limits.milliseconds)) {
      left += 1;
      return apart;
    }
    const shown = drawn(node);
    if (!shown) {
      // Only what is invisible, and not what is not there, can have children that are seen.
      const style = getComputedStyle(node);
      if (style.display === "none" || style.contentVisibility === "hidden" || style.opacity === "0") return apart;
    }
    const inline = INLINE.has(tag);
    let row = parent;
    if (shown) {
      const made = rowOf(node, tag, parent);
      if (made === null) return apart;
      row = made;
    }
    if (tag === "select") {
      options(node, row);
      return true;
    }
    if (tag === "iframe" || tag === "frame" || tag === "textarea" || (tag === "svg" && row !== parent)) return true;
    let between = apart || !inline;
    // What a label says is the name of its field already.
    const labels = tag === "label" && node.control && drawn(node.control) ? 1 : 0;
    labelled += labels;
    for (const child of childrenOf(node)) {
      if (isElement(child) || (shown && readable(node))) between = visit(child, row, between);
    }
    labelled -= labels;
    return between || !inline;
  }

  // The row of an element, its parent's where it has none of its own, null where it hides all it holds.
  function rowOf(node, tag, parent) {
    const role = roleOf(node);
    if (role === "") return null;
    if (INLINE_ROLES.has(role)) return parent;
    const live = INTERACTIVE.has(role);
    const presses = !live && tag !== "body" && tag !== "html" && tag !== "label" && clickable(node);
    if (role === "generic" && !presses) {
      return clips(node) ? null : parent;
    }
    if (!hasSize(node)) {
      if (live || clips(node)) return clips(node) ? null : parent;
      if (role === "generic") return parent;
    }
    const named = limits.names || live || presses || role === "heading" || NAMED.has(role) || ownLabel(node);
    const name = named ? identityOf(node, role).name : "";
    if (role === "group" && !name && !presses && tag !== "details") return parent;
    const states = statesOf(node, role);
    if (presses) states.presses = "true";
    if (focused(node)) states.focused = "true";
    return add(parent, numberOf(node), role, name, states);
  }

  function options(select, row) {
    let shown = 0;
    for (const option of select.options) {
      if (shown++ === MAX_OPTIONS) {
        add(row, 0, TEXT, `… ${select.options.length - MAX_OPTIONS} more options`, null);
        return;
      }
      add(row, 0, "option", plain(option.label).slice(0, MAX_NAME), statesOf(option, "option"));
    }
  }

  visit(from, -1, true);
  return { rows, left };
}

// Letters of no height are there for machines only.
const readable = (element) => getComputedStyle(element).fontSize !== "0px";

function clips(element) {
  const box = boxOf(element);
  if (box.width > 0 && box.height > 0) return false;
  const style = getComputedStyle(element);
  return style.display !== "contents" && style.overflow !== "visible";
}

function focused(element) {
  const root = rootNodeOf(element);
  const read = root instanceof ShadowRoot ? focusIn.shadow : root instanceof Document ? focusIn.document : null;
  return read !== null && read(root) === element && element !== document.body && document.hasFocus();
}

const titleNow = () => reader(Document, "title")(document);

function snapshot(number, limits) {
  const from = number === 0 ? top_() : elementOf(number);
  if (!from || !connected(from)) return null;
  return { ...walk(from, limits), title: titleNow() };
}
