"""The pages of the fixture shop. Plain HTML and small scripts: each page is hard in one way."""

from html import escape
from typing import Any

_HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>{style}<main>'
_STYLE = "<style>body{font:16px sans-serif;margin:2em}td,th{padding:.2em .8em;text-align:left}</style>"
# Tells the server what was clicked, without leaving the page.
_REPORT = """<script>
const report = what => fetch("/clicked", {method: "POST", body: new URLSearchParams({what})});
</script>"""


def page(title: str, body: str) -> str:
    return _HEAD.format(title=escape(title), style=_STYLE) + body


def home(user: str) -> str:
    who = f"<p>Logged in as {escape(user)}</p>" if user else '<p><a href="/login">Log in</a></p>'
    links = ("orders", "dialogs", "frames", "shadow", "upload", "popup", "slow", "covered", "echo", "rerender")
    items = "".join(f'<li><a href="/{name}">{name.title()}</a>' for name in links)
    return page("Shop", f"<h1>Shop</h1>{who}<ul>{items}</ul>")


def login(*, wrong: bool) -> str:
    complaint = "<p role=alert>Wrong name or password</p>" if wrong else ""
    return page(
        "Log in",
        f"""<h1>Log in</h1>{complaint}<form method=post action="/login">
<label>Name <input name=user autocomplete=username></label>
<label>Password <input name=password type=password autocomplete=current-password></label>
<button>Log in</button></form>""",
    )


def welcome(user: str) -> str:
    """Puts something into every kind of storage, and shows what is there."""
    return page(
        "Welcome",
        f"""<h1>Welcome, {escape(user)}</h1><p><a href="/orders">Orders</a> <a href="/logout">Log out</a></p>
<dl><dt>localStorage<dd id=local><dt>IndexedDB<dd id=indexed></dl>
<script>
local.textContent = localStorage.getItem("visits") ?? "empty";
localStorage.setItem("visits", String(Number(localStorage.getItem("visits") ?? 0) + 1));
const opened = indexedDB.open("shop", 1);
opened.onupgradeneeded = () => opened.result.createObjectStore("cart");
opened.onsuccess = () => {{
  const store = opened.result.transaction("cart", "readwrite").objectStore("cart");
  const asked = store.get("item");
  asked.onsuccess = () => {{
    indexed.textContent = asked.result ?? "empty";
    store.put("a blue bicycle", "item");
  }};
}};
</script>""",
    )


def orders(rows: list[dict[str, Any]], number: int, pages: int, wanted: str, shipped: set[int]) -> str:
    lines = "".join(_row(row, number, row["id"] in shipped) for row in rows)
    around = f"&search={escape(wanted)}" if wanted else ""
    before = f'<a rel=prev href="/orders?page={number - 1}{around}">Previous</a> ' if number > 1 else ""
    after = f'<a rel=next href="/orders?page={number + 1}{around}">Next</a>' if number < pages else ""
    return page(
        "Orders",
        f"""<h1>Orders</h1><form><label>Search <input name=search value="{escape(wanted)}"></label>
<button>Search</button></form><table><thead><tr><th>Order<th>Customer<th>Amount<th>State</thead>
<tbody>{lines}</tbody></table><nav aria-label=Pages>{before}Page {number} of {pages} {after}</nav>
<p><a href="/orders.csv">Download as CSV</a></p>""",
    )


def _row(row: dict[str, Any], number: int, is_shipped: bool) -> str:
    ship = (
        "shipped"
        if is_shipped
        else f'<form method=post action="/ship"><input type=hidden name=page value="{number}">'
        f'<button name=id value="{row["id"]}" aria-label="Ship order {row["id"]}">Ship</button></form>'
    )
    return f"<tr><td>{row['id']}<td>{escape(row['customer'])}<td>{row['amount']}<td>{ship}"


DIALOGS = page(
    "Dialogs",
    """<h1>Dialogs</h1><button id=ask>Delete all</button> <button id=rename>Rename</button>
<button id=tell>Tell</button> <p id=answer>nothing yet</p>
<script>
ask.onclick = () => { answer.textContent = confirm("Delete all orders?") ? "deleted" : "kept"; };
rename.onclick = () => { answer.textContent = "name: " + prompt("New name?", "old"); };
tell.onclick = () => { alert("Done"); answer.textContent = "told"; };
</script>""",
)


def frames(other: str) -> str:
    return page(
        "Frames",
        f"""<h1>Frames</h1><iframe title="same origin" src="/framed?who=same" width=400 height=120></iframe>
<iframe title="other origin" src="{escape(other)}" width=400 height=120></iframe>""",
    )


def framed(who: str) -> str:
    return page(
        f"Inside {who}",
        f"""{_REPORT}<h2>Inside {escape(who)}</h2><label>Note <input id=note></label>
<button onclick="report('{escape(who)}:' + note.value); this.textContent = 'Sent'">Send</button>""",
    )


SHADOW = page(
    "Shadow",
    _REPORT
    + """<h1>Shadow</h1><fancy-box></fancy-box>
<script>
customElements.define("fancy-box", class extends HTMLElement {
  connectedCallback() {
    const root = this.attachShadow({mode: "open"});
    root.innerHTML = "<label>Colour <input id=colour></label><button>Paint</button><p id=painted>nothing</p>";
    root.querySelector("button").onclick = () => {
      root.querySelector("#painted").textContent = "painted " + root.querySelector("#colour").value;
      report("paint");
    };
  }
});
</script>""",
)

UPLOAD = page(
    "Upload",
    """<h1>Upload</h1><form method=post action="/upload" enctype="multipart/form-data">
<label>Files <input type=file name=files multiple></label><button>Send</button></form>""",
)


def popup(other: str) -> str:
    return page(
        "Popup",
        f"""<h1>Popup</h1><a target=_blank href="/framed?who=tab">Open a tab</a>
<button onclick="window.open('{escape(other)}')">Open a window elsewhere</button>""",
    )


def slow(until: str) -> str:
    wait = 'fetch("/gate").then(show)' if until == "gate" else f"setTimeout(show, {int(until)})"
    return page(
        "Slow",
        f"""{_REPORT}<h1>Slow</h1><p id=state>waiting</p><script>
const show = () => {{
  state.textContent = "ready";
  document.querySelector("main").insertAdjacentHTML("beforeend", "<button onclick=\\"report('late')\\">Late</button>");
}};
{wait};
</script>""",
    )


COVERED = page(
    "Covered",
    _REPORT
    + """<h1>Covered</h1><button id=buy onclick="report('buy'); bought.textContent = 'bought'">Buy</button>
<p id=bought>nothing</p>
<div id=banner role=dialog aria-label="Cookies" style="position:fixed;inset:0;background:#fffc">
<div style="position:fixed;bottom:0;background:#eee;padding:2em">We use cookies
<button onclick="banner.remove(); report('cookies')">Accept</button></div></div>""",
)

ECHO = page(
    "Echo",
    """<h1>Echo</h1><form method=post action="/echo"><label>Say <input name=said></label><button>Say it</button></form>
<p id=live></p><script>
document.querySelector("input").oninput = event => {
  live.textContent = event.target.value;
  console.error("typed: " + event.target.value);
  document.title = "Echo " + event.target.value;
};
</script>""",
)


def rerender(rows: int) -> str:
    """Rows change places and are made anew on every mouse move and on `shuffle()`, each with the same words."""
    return page(
        "Rerender",
        f"""{_REPORT}<h1>Rerender</h1><ul id=list></ul><script>
let names = Array.from({{length: {rows}}}, (_, at) => "item " + at);
window.shuffle = () => {{
  names.push(names.shift());
  list.replaceChildren(...names.map(name => {{
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.textContent = "Delete";
    button.setAttribute("aria-label", "Delete " + name);
    button.onclick = () => report(name);
    item.append(name, " ", button);
    return item;
  }}));
}};
shuffle();
</script>""",
    )


def big(rows: int) -> str:
    lines = "".join(f'<tr><td>{at}<td><a href="/item/{at}">Item {at}</a><td><button>Buy</button>' for at in range(rows))
    return page("Big", f"<h1>Big</h1><table><tbody>{lines}</tbody></table>")
