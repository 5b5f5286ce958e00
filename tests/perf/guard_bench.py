"""A page with twenty resources, loaded by the same Chromium directly and through the guard that judges connections.

Site and guard are processes of their own. Each load is in a new context: no connection is there yet, and nothing is in
a cache.
"""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks import bars
from benchmarks.measure import row
from palyra.browser.engine.chromium import find_layout
from perf.egress_bench import _palyra, _started

LOADS = 60
WARM = 5
# Only the guard knows this name; the browser that goes there directly gets its address.
SHOP = "shop.test"
_LOADED = "performance.getEntriesByType('resource').filter(each => each.responseStatus == 200).length"
RESOURCES = 20

_SITE = """
import asyncio, sys

COUNT = int(sys.argv[1])
KINDS = ("css", "js", "svg")
links = [f"/{number}.{KINDS[number % 3]}" for number in range(COUNT)]
TAGS = {"css": "<link rel=stylesheet href={}>", "js": "<script src={}></script>", "svg": "<img src={}>"}
PAGE = "<title>Shop</title>" + "".join(TAGS[link.rpartition(".")[2]].format(link) for link in links)
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILL = "x" * 8000
BODIES = {
    "css": "/*" + FILL + "*/ p { color: red }",
    "js": "/*" + FILL + "*/ var seen = 1",
    "svg": "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'><!--" + FILL + "--></svg>",
}

def reply(path):
    kind = path.rpartition(".")[2]
    body = BODIES.get(kind, PAGE).encode()
    head = f"HTTP/1.1 200 OK\\r\\nContent-Type: {TYPES.get(kind, 'text/html')}\\r\\nContent-Length: {len(body)}\\r\\n"
    return head.encode() + b"Cache-Control: no-store\\r\\n\\r\\n" + body

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(reply(head.split(b" ", 2)[1].decode()))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def run() -> list[dict[str, Any]]:
    with _site() as site, _palyra(site, *_known(site)) as guard:
        ours, theirs = asyncio.run(_measure(site, guard["port"]))
    name = f"a page of {RESOURCES} resources through the SOCKS5 guard"
    return [row(name, "ms", ours, "the same page directly", theirs, bars.GUARD)]


def _known(site: int) -> list[str]:
    place = f"{SHOP}:{site}"
    return ["--allow", place, "--private-target", place, "--static", f"{SHOP}=127.0.0.1"]


@contextlib.contextmanager
def _site() -> Iterator[int]:
    words = [sys.executable, "-c", _SITE, str(RESOURCES)]
    with _started(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())


async def _measure(site: int, guard: int) -> tuple[list[float], list[float]]:
    from playwright.async_api import async_playwright

    program = find_layout().chromium
    options = [f"--host-resolver-rules=MAP {SHOP} 127.0.0.1"]
    through = {"server": f"socks5://127.0.0.1:{guard}"}
    async with async_playwright() as playwright:
        direct = await playwright.chromium.launch(executable_path=program, args=options)
        guarded = await playwright.chromium.launch(executable_path=program, proxy=through)  # type: ignore[arg-type]
        ours: list[float] = []
        theirs: list[float] = []
        for number in range(LOADS + WARM):
            for browser, times in ((guarded, ours), (direct, theirs)):
                took = await _load(browser, f"http://{SHOP}:{site}/")
                if number >= WARM:
                    times.append(took)
        await guarded.close()
        await direct.close()
    return ours, theirs


async def _load(browser: Any, url: str) -> float:
    """Milliseconds until the page and all its resources are there."""
    context = await browser.new_context()
    try:
        page = await context.new_page()
        since = time.perf_counter()
        await page.goto(url, wait_until="load")
        took = (time.perf_counter() - since) * 1_000
        loaded = await page.evaluate(_LOADED)
        if loaded != RESOURCES:
            raise RuntimeError(f"only {loaded} of {RESOURCES} resources were loaded")
        return took
    finally:
        await context.close()
