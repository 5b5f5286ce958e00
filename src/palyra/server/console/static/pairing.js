// A pairing code as it comes, once: its text, and its picture drawn as one path.
const JOIN = {
  node: "palyra node run",
  worker: "palyra-workerd join",
  egress: "palyra-egressd join",
};

document.addEventListener("palyra:done", (event) => {
  if (event.target.dataset.code === undefined) return;
  const made = event.detail;
  const where = made.qr || !made.addresses.length ? "" : ` --server ${made.addresses[0]}`;
  document.getElementById("code-text").textContent = `${JOIN[made.kind] ?? "palyra"}${where} --code '${made.code}'`;
  document.getElementById("code-more").textContent = `Good until ${made.expires_at.slice(11, 19)} UTC. Then compare the digits above.`;
  draw(document.getElementById("qr"), made.qr);
  document.getElementById("code").hidden = false;
});

function draw(picture, qr) {
  picture.replaceChildren();
  picture.toggleAttribute("hidden", !qr);
  if (!qr) return;
  picture.setAttribute("viewBox", `0 0 ${qr.size} ${qr.size}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", qr.path);
  picture.append(path);
}
