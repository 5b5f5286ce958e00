"""A daemon's part in small that is killed while it starts a browser. Run by tests.

``hold FOLDER`` starts one whose bubblewrap stops at the worst moment: it has asked to die with us, and what it has
started still waits for its word. ``points TOKEN COUNT`` starts one after the other, each killed a little later than the
one before; the token is among the words of every process of theirs.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

from palyra.browser.domain import limits
from palyra.browser.engine.chromium import account_of, find_layout
from palyra.browser.engine.launch_plan import CDP_READ_FD, CDP_WRITE_FD, ChromiumPlan, chromium_plan, flags
from palyra.browser.engine.process_tree import spawn

# What bubblewrap does until its namespaces are built takes a few milliseconds; on a busy machine, some more.
STEP_SECONDS = 0.000_2


def plan() -> ChromiumPlan:
    given = flags(own_sandbox=True)
    account = account_of(limits.BROWSER_UID)
    return chromium_plan(find_layout(None), account, limits.FolderSizes(), given, own_sandbox=True)


def held(folder: Path) -> tuple[str, ...]:
    """The plan with a bubblewrap that tells whom it has started, and then waits, at pipes that do not end with us."""
    first, *rest = plan().lines
    opened = f'exec {CDP_READ_FD}<>{folder}/told {CDP_WRITE_FD}<>{folder}/word; exec "$@"'
    words = [*first.words, "/bin/sh", "-c", opened, "sh"]
    for line in rest:
        is_info = line.words[0] == "--info-fd"
        words += ("--info-fd", str(CDP_READ_FD), "--userns-block-fd", str(CDP_WRITE_FD)) if is_info else line.words
    return tuple(words)


async def hold(folder: Path) -> None:
    tree = spawn(held(folder))
    print(tree.pid, flush=True)
    await asyncio.sleep(3600)


async def killed_after(seconds: float, token: str) -> None:
    spawn((*plan().argv, token))
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def points(token: str, count: int) -> None:
    """No threads here, so that this process can fork the ones that die."""
    for number in range(count):
        child = os.fork()
        if not child:
            asyncio.run(killed_after(number * STEP_SECONDS, token))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        asyncio.run(hold(Path(sys.argv[2])))
    else:
        points(sys.argv[2], int(sys.argv[3]))
