"""The kinds of load that run elsewhere: on workers of the fleet, and in browsers."""

import threading
from collections.abc import Callable
from typing import Any

from soak.caller import Caller, Ended
from soak.loads import SHOP, reached
from soak.observations import OK
from soak.settings import ELSEWHERE, HOST, WEB_PORT

# A browser is many processes: two cores carry two of them beside the rest.
_BROWSERS = threading.Semaphore(2)


def on_worker(caller: Caller) -> None:
    choice = caller.random.random()
    if choice < 0.45:
        text = caller.unique()
        ended = caller.call("worker", "echo", {"text": text}, tier="worker")
        if ended.code == OK and ended.result != {"text": text}:
            caller.observed.is_wrong(f"echo of {text} on a worker returned {ended.result}")
    elif choice < 0.6:
        caller.call("worker", "sleep", {"seconds": 0.7}, tier="worker")
    elif choice < 0.8:
        caller.call("worker_program", "process.run", {"command": "sleep", "args": ["0.3"]}, tier="worker")
    else:
        arguments = {"command": "curl", "args": ["-sS", "--max-time", "15", SHOP + "/"]}
        reached(caller, "worker_page", caller.call("worker_curl", "process.run", arguments, tier="worker"))


def browser(caller: Caller) -> None:
    """A session in a run of its own; one in ten is left open."""
    if not _BROWSERS.acquire(blocking=False):
        return
    try:
        _session(caller)
    finally:
        _BROWSERS.release()


def _session(caller: Caller) -> None:
    opened = caller.call("browser_open", "browser.open", {"hosts": [f"{HOST}:{WEB_PORT}"], "url": SHOP + "/"})
    if opened.code != OK or opened.call is None:
        return
    run_id, session = opened.call.run_id, opened.result["session"]

    def act(tool: str, kind: str = "browser", **arguments: Any) -> Ended:
        return caller.call(kind, tool, {"session": session, **arguments}, run_id=run_id)

    seen = act("browser.snapshot")
    if seen.code == OK and "Orders" not in seen.result["text"]:
        caller.observed.is_wrong(f"a page was seen as {seen.result['text'][:200]}")
    act("browser.act", actions=[{"action": "click", "target": {"text": "Press"}}])
    if caller.random.random() < 0.5:
        act("browser.screenshot", format="jpeg")
    if caller.random.random() < 0.3:
        refused = act("browser.navigate", "browser_elsewhere", url=f"http://{ELSEWHERE}/")
        if refused.code == OK:
            caller.observed.is_wrong("a browser reached a host that is not allowed")
    act("browser.navigate", url=SHOP + "/more")
    if caller.random.random() < 0.9:
        act("browser.close")


FAR_KINDS: dict[str, tuple[int, Callable[[Caller], None]]] = {"on_worker": (18, on_worker), "browser": (6, browser)}
