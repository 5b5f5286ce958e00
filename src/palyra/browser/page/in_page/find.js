// Elements by selector, in every open root of this document.
const MAX_FOUND = 20;

function described(element) {
  return { number: numberOf(element), ...identityOf(element), hidden: whyHidden(element) };
}

function* everyElement() {
  for (const root of rootsOf(document)) yield* root.querySelectorAll("*");
}

// Each way gives two lists: those that match exactly, and those that only contain the wanted text.
function byCss(css) {
  const found = [];
  for (const root of rootsOf(document)) found.push(...root.querySelectorAll(css));
  return [found, []];
}

// The innermost elements with that text: exactly, or else as a part and in any case.
function byText(text) {
  const wanted = plain(text);
  const low = wanted.toLowerCase();
  const exact = [];
  const part = [];
  for (const element of everyElement()) {
    const tag = localNameOf(element);
    if (SKIPPED.has(tag) || tag === "html" || tag === "body") continue;
    const own = ownText(element);
    if (!own.toLowerCase().includes(low)) continue;
    (own === wanted ? exact : part).push(element);
  }
  return [innermost(exact), innermost(part)];
}

function innermost(found) {
  const all = new Set(found);
  const outer = new Set();
  for (const element of found) {
    for (const above of composedAncestors(composedParent(element))) if (all.has(above)) outer.add(above);
  }
  return found.filter((element) => !outer.has(element));
}

function ownText(element) {
  const tag = localNameOf(element);
  if (tag === "input") return ["submit", "reset", "button"].includes(element.type) ? plain(element.value) : "";
  if (WITHOUT_TEXT.has(tag) || tag === "option") return "";
  return plain(contentName(element, new Set([element])));
}

function byRole(role, name) {
  const wanted = name === null ? null : plain(name);
  const exact = [];
  const part = [];
  for (const element of everyElement()) {
    if (roleOf(element) !== role) continue;
    if (wanted === null) {
      exact.push(element);
      continue;
    }
    const named = nameOf(element, role);
    if (named === wanted) exact.push(element);
    else if (named.toLowerCase().includes(wanted.toLowerCase())) part.push(element);
  }
  return [exact, part];
}

// The best there are: drawn before not drawn, then exact before a part. `rank` says which those are. Where it is only
// one, also where the mouse may go while it is seen whether it is at rest.
function find(selector) {
  let found;
  try {
    if (selector.css) found = byCss(selector.css);
    else if (selector.text) found = byText(selector.text);
    else found = byRole(selector.role, selector.name ?? null);
  } catch (problem) {
    return { problem: String(problem.message ?? problem) };
  }
  const seen = found.map((each) => each.filter((element) => !whyHidden(element)));
  const ranks = [...seen, ...found];
  const rank = ranks.findIndex((each) => each.length > 0);
  const best = rank < 0 ? [] : ranks[rank].slice(0, MAX_FOUND);
  return { rank, elements: best.map(described), aim: best.length === 1 ? aimAt(best[0]) : null };
}

// What somebody who looked for this may have meant: of the same role, else anything that is pressed or filled in.
function candidates(role) {
  const found = [];
  for (const element of everyElement()) {
    const its = roleOf(element);
    if (role ? its !== role : !INTERACTIVE.has(its)) continue;
    if (whyHidden(element)) continue;
    found.push(described(element));
    if (found.length === 200) break;
  }
  return found;
}

const tell = (number) => {
  const element = elementOf(number);
  return element && connected(element) ? described(element) : null;
};

const textShown = (text) => byText(text).flat().some((element) => !whyHidden(element));

// Text and markup of what is seen, for the other two forms of an observation.
const INLINE_DISPLAYS = new Set(["inline", "inline-block", "contents", "inline-flex", "inline-grid", "ruby", "none"]);

function visibleText(number, limit) {
  const from = number === 0 ? top_() : elementOf(number);
  if (!from || !connected(from)) return null;
  let text = "";
  const visit = (node) => {
    if (text.length > limit) return;
    if (typeOf(node) === 3) {
      text += node.data.replace(/[ \t\n\r\f]+/g, " ");
      return;
    }
    if (!isElement(node)) return;
    const tag = localNameOf(node);
    if (SKIPPED.has(tag) || attribute(node, "aria-hidden") === "true") return;
    const style = getComputedStyle(node);
    if (style.display === "none" || style.opacity === "0" || clips(node)) return;
    if (tag === "br") text += "\n";
    if (tag === "iframe" || tag === "frame") text += `\u0000${numberOf(node)}\u0000`;
    if (WITHOUT_TEXT.has(tag)) return;
    const block = !INLINE_DISPLAYS.has(style.display) && !style.display.startsWith("table-cell");
    if (block) text += "\n";
    for (const child of childrenOf(node)) {
      if (typeOf(child) === 3 && (style.visibility !== "visible" || style.fontSize === "0px")) continue;
      visit(child);
    }
    if (style.display === "table-cell") text += "\t";
    if (block) text += "\n";
  };
  visit(from);
  return { text: text.slice(0, limit), left: text.length > limit ? 1 : 0, title: titleNow() };
}

const VOID = new Set("area base br col embed hr img input link meta source track wbr".split(" "));
const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

function markup(number, limit) {
  const from = number === 0 ? top_() : elementOf(number);
  if (!from || !connected(from)) return null;
  let text = "";
  const visit = (node) => {
    if (text.length > limit) return;
    if (typeOf(node) === 3) text += escaped(node.data);
    if (!isElement(node)) return;
    const tag = localNameOf(node);
    if (tag === "script" || tag === "style" || tag === "noscript" || tag === "template") return;
    text += `<${tag}`;
    const kept = secretField(node) || (tag === "input" && node.type === "hidden");
    for (const each of Array.from(Element.prototype.getAttributeNames.call(node))) {
      if (each.startsWith("on") || each === "nonce" || each === "srcdoc" || (kept && each === "value")) continue;
      text += ` ${each}="${escaped(attribute(node, each)).replace(/"/g, "&quot;")}"`;
    }
    text += ">";
    if (tag === "iframe" || tag === "frame") text += `\u0000${numberOf(node)}\u0000`;
    if (VOID.has(tag)) return;
    const shadow = openShadowOf(node);
    if (shadow) {
      text += '<template shadowrootmode="open">';
      for (let child = firstChildOf(shadow); child; child = nextOf(child)) visit(child);
      text += "</template>";
    }
    if (tag !== "textarea" || !hiddenValues.has(node)) {
      for (let child = firstChildOf(node); child; child = nextOf(child)) visit(child);
    }
    text += `</${tag}>`;
  };
  visit(from);
  return { text: text.slice(0, limit), left: text.length > limit ? 1 : 0, title: titleNow() };
}
