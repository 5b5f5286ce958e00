// Runs at the start of every document, in a world that the page cannot see, before any script of the page's: it stands
// first at every input event, and tells the title. What judges an event comes with the first call into the document;
// until then there was no input of ours, so there is nothing to judge.
const hold = {
  judge: null,
  captured: null,
  dragged: null,
  ours: null,
  MOUSE: ["pointerdown", "mousedown", "pointerup", "mouseup", "click", "auxclick", "contextmenu", "dblclick"],
  MOVES: ["pointermove", "mousemove"],
  DRAG: ["dragenter", "dragover", "drop"],
  KEYS: ["keydown", "keypress", "beforeinput", "paste"],
};
for (const type of [...hold.MOUSE, ...hold.MOVES, ...hold.DRAG, ...hold.KEYS]) {
  addEventListener(type, (event) => hold.judge?.(event), { capture: true });
}
addEventListener("gotpointercapture", (event) => hold.captured?.(event), { capture: true });
addEventListener("dragstart", (event) => hold.dragged?.(event), { capture: true });

// A changed title is reported by an event that comes before the answer to the command that changed it. A page that
// changes it all the time is reported so many times a second.
const MAX_TITLE = 16384;
const MAX_TELLS = 20;
const ofDocument = (key) => Object.getOwnPropertyDescriptor(Document.prototype, key).get;
const readTitle = ofDocument("title");
const readRoot = ofDocument("documentElement");
const readHead = ofDocument("head");
let reportedTitle = null;
let tells = 0;

function tellTitle() {
  const title = readTitle.call(document);
  if (title === reportedTitle || tells > MAX_TELLS) return;
  if (tells++ === 0) {
    setTimeout(() => {
      tells = 0;
      tellTitle();
    }, 1000);
  }
  if (tells > MAX_TELLS) return;
  reportedTitle = title;
  tell(title.slice(0, MAX_TITLE));
}

// What can change it: its text, which element it is, and which head holds that.
const titles = new MutationObserver(followTitle);
let followed = [];

function followTitle() {
  const root = readRoot.call(document);
  const head = readHead.call(document);
  const now = [root, head, root?.querySelector("title")].filter((each) => each);
  if (now.length !== followed.length || now.some((each, at) => each !== followed[at])) {
    followed = now;
    titles.disconnect();
    titles.observe(document, { childList: true });
    if (root) titles.observe(root, { childList: true });
    for (const each of now.slice(1)) titles.observe(each, { childList: true, characterData: true, subtree: true });
  }
  // None yet may only mean that it was not read so far.
  if (document.readyState !== "loading" || readTitle.call(document) !== "") tellTitle();
}

if (typeof tell === "function" && self === top) {
  followTitle();
  addEventListener("DOMContentLoaded", followTitle, { capture: true });
  addEventListener("load", followTitle, { capture: true });
  addEventListener("pageshow", (event) => {
    if (event.persisted) reportedTitle = null;
    followTitle();
  });
}
