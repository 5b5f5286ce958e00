// The live picture of a browser session on a canvas, and what a person does in it once they have taken it over.
import { write } from "./forms.js";

const canvas = document.getElementById("picture");
const where = document.getElementById("where");
const NAMED = new Set(["Enter", "Backspace", "Tab", "Delete", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"]);
const yours = () => document.querySelector("[data-yours]")?.dataset.yours === "yes";
let size = { width: 1280, height: 720 };
let sending = Promise.resolve();

if (canvas) {
  watch();
  canvas.addEventListener("click", (event) => act({ does: "click", ...placeOf(event) }));
  canvas.addEventListener("wheel", scroll, { passive: false });
  canvas.addEventListener("keydown", press);
  document.querySelector("[data-enlarge]").addEventListener("click", enlarge);
}

function watch() {
  const stream = new EventSource(canvas.dataset.watch);
  stream.addEventListener("frame", (event) => show(JSON.parse(event.data)));
  stream.addEventListener("over", () => document.dispatchEvent(new CustomEvent("palyra:gone")));
  document.addEventListener("palyra:gone", () => {
    stream.close();
    end();
  });
  stream.onerror = () => (where.textContent = "not connected");
}

// Nothing more can be done here: the last picture stays, and the way back is shown.
function end() {
  where.textContent = "The session is over.";
  const back = document.createElement("a");
  back.href = "/browser";
  back.textContent = "All sessions";
  const said = document.createElement("p");
  said.append("The session is over: it was closed, or its time was up. ", back);
  document.getElementById("control")?.replaceChildren(said);
}

// On a narrow screen: as large as the page really is, to be moved about under one's finger.
function enlarge(event) {
  const large = canvas.parentElement.classList.toggle("large");
  event.currentTarget.setAttribute("aria-pressed", String(large));
  event.currentTarget.textContent = large ? "Fit to the screen" : "Enlarge";
}

async function show(frame) {
  const bytes = Uint8Array.from(atob(frame.picture), (char) => char.charCodeAt(0));
  const picture = await createImageBitmap(new Blob([bytes], { type: frame.type }));
  canvas.width = picture.width;
  canvas.height = picture.height;
  canvas.getContext("2d").drawImage(picture, 0, 0);
  size = frame;
  where.textContent = frame.url;
  canvas.dataset.frames = Number(canvas.dataset.frames ?? 0) + 1;
}

// From where the pointer is on our screen to the page's own pixels.
function placeOf(event) {
  const box = canvas.getBoundingClientRect();
  const along = (at, start, length, whole) => Math.round(((at - start) / length) * whole);
  return {
    x: along(event.clientX, box.left, box.width, size.width),
    y: along(event.clientY, box.top, box.height, size.height),
  };
}

function scroll(event) {
  if (!yours()) return;
  event.preventDefault();
  act({ does: "scroll", ...placeOf(event), dx: Math.round(event.deltaX), dy: Math.round(event.deltaY) });
}

function press(event) {
  if (!yours() || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return canvas.blur();
  if (event.key.length === 1) act({ does: "type", text: event.key });
  else if (NAMED.has(event.key)) act({ does: "key", key: event.key });
  else return;
  event.preventDefault();
}

// One after the other: what is typed arrives in its order.
function act(input) {
  if (!yours()) return;
  const send = () => yours() && write(canvas.dataset.operate, "POST", { inputs: [input] });
  sending = sending.then(send).catch(() => {});
}
