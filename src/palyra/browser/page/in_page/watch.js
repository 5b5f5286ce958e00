// Tells when the page may look different: changes of the tree, of values and styles, and of how far it is loaded.
const SIGNS = ["animationend", "transitionend", "input", "change", "toggle", "load", "scroll", "focusin", "readystatechange"];
let version = 0;
let waiting = [];
let watched = new WeakSet();
let isWatching = false;
const watcher = new MutationObserver(noteChange);

let isReported = false;

// All changes within a frame are reported once.
function noteChange() {
  version += 1;
  if (isReported || waiting.length === 0) return;
  isReported = true;
  nextFrame().then(() => {
    isReported = false;
    for (const resolve of waiting.splice(0)) resolve(version);
  });
}

// From now on every change counts. The number of those so far: what is looked at after this call is not older.
function watch() {
  for (const root of rootsOf(document)) {
    if (watched.has(root)) continue;
    watched.add(root);
    watcher.observe(root, { subtree: true, childList: true, attributes: true, characterData: true });
  }
  if (!isWatching) {
    isWatching = true;
    for (const each of SIGNS) document.addEventListener(each, noteChange, { capture: true, passive: true });
    addEventListener("resize", noteChange);
    addEventListener("load", noteChange);
  }
  return version;
}

// Done when there was a change after that one, and at the next frame while something is animated: that changes no tree.
function changeAfter(seen) {
  if (version !== seen) return Promise.resolve(version);
  return new Promise((resolve) => {
    waiting.push(resolve);
    if (document.getAnimations().some((each) => each.playState === "running")) nextFrame().then(noteChange);
  });
}

function unwatch() {
  watcher.disconnect();
  watched = new WeakSet();
  isWatching = false;
  for (const each of SIGNS) document.removeEventListener(each, noteChange, { capture: true });
  removeEventListener("resize", noteChange);
  removeEventListener("load", noteChange);
  noteChange();
  return true;
}

const ORDER = ["loading", "interactive", "complete"];
const loaded = (state) => ORDER.indexOf(document.readyState) >= ORDER.indexOf(state);
