"""Trace one real call through the daemon and write docs/explanation/one-call.md.

An agent calls ``process.run`` over MCP. A person approves it, and the agent makes the same call again. That one runs in
Tier C. The daemon runs under a profile hook, which records each function of ``palyra`` that runs for the two requests.

``--check`` writes nothing and fails if the page shows another way. ``--counts`` prints the counts.
"""

import argparse
import asyncio
import atexit
import contextvars
import importlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "explanation" / "one-call.md"
# The header that the agent's two calls carry, and nothing else.
MARK = "x-palyra-traced-call"
TOOL, ARGUMENTS = "process_run", {"command": "echo", "args": ["hello"]}
PRINCIPAL = "agent:traced"
# The call begins once the daemon has used no processor time for so long, at the latest after so long.
QUIET_SECONDS, MOST_SECONDS = 0.5, 30.0
# What of the machine decides is in these packages.
BUILDS = re.compile(r"palyra\.(sandbox|workspace)\.")
# The counts at 117b6da, by this script: the code before it was put into packages by process and pipeline.
BEFORE = {"modules": 144, "root modules": 7, "crossings": 48}
BEFORE_ENTRIES = (
    "tools 13, daemons 7, journal 5, mcp 5, sandbox 5, workspace 3, api 2, egress 2, identity 2, policy 2, "
    "telemetry 2, signing 1"
)


class Trace(NamedTuple):
    """``steps`` has each function once, as attempt, module and name, in the order of its first call."""

    steps: list[tuple[int, str, str]]
    helpers: list[str]
    result: dict[str, Any]


class Visit(NamedTuple):
    """A stretch of the way through one top package: its modules in order, each with its functions in order."""

    attempt: int
    package: str
    modules: dict[str, list[str]]


class Recorder:
    """Note the functions of ``palyra`` that run for the marked calls, in all threads of this process.

    A context variable says for whom a frame runs: 0 for others, 1 and 2 for the attempts. Tasks and ``to_thread`` copy
    it. A thread that nobody gave a context has none: the daemon is idle otherwise, so it works for the open attempt.
    """

    def __init__(self) -> None:
        self.steps: dict[tuple[str, str], int] = {}
        self._for = contextvars.ContextVar[int]("traced call")
        self._for.set(0)
        self._names: dict[Any, tuple[str, str] | None] = {}
        self._attempt = 0
        self._open = False
        self._task: asyncio.Task[Any] | None = None
        self._connections: set[int] = set()
        self._entered: FrameType | None = None
        self._importing = threading.local()

    def start(self) -> None:
        threading.setprofile(self._hook)
        sys.setprofile(self._hook)

    def _hook(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call":
            if code.co_name == "data_received":
                self._take_bytes(frame)
            if code.co_name == "<module>":
                self._importing.depth = self._depth() + 1
            elif self._open and not self._depth():
                self._note(code)
        elif event == "return":
            if code.co_name == "<module>":
                self._importing.depth = max(self._depth() - 1, 0)
            elif frame is self._entered:
                self._entered = None
                self._for.set(0)

    def _depth(self) -> int:
        return getattr(self._importing, "depth", 0)

    def _take_bytes(self, frame: FrameType) -> None:
        """Open an attempt when its head arrives, and own what this connection brings until it is answered."""
        if self._entered is not None:
            return
        connection, data = id(frame.f_locals.get("self")), frame.f_locals.get("data", b"")
        if MARK.encode() in data:
            self._attempt += 1
            self._open, self._task = True, None
            self._connections.add(connection)
        if self._open and connection in self._connections:
            self._entered = frame
            self._for.set(self._attempt)

    def _note(self, code: Any) -> None:
        if code not in self._names:
            self._names[code] = name_function(code)
        name = self._names[code]
        owner = self._for.get(self._attempt)
        if name is None or not owner:
            return
        self.steps.setdefault(name, self._attempt)
        if self._task is None and self._for.get(0) and (task := current_task()) is not None:
            # The first task of the attempt serves its request: with it the answer is written.
            self._task = task
            task.add_done_callback(self._close)

    def _close(self, _task: object) -> None:
        self._open = False


def current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def name_function(code: Any) -> tuple[str, str] | None:
    """Name the module and the function. A lambda, a closure and a comprehension belong to what they stand in."""
    try:
        path = Path(code.co_filename).relative_to(SOURCE)
    except ValueError:
        return None
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    return module, re.sub(r"(\.<locals>)?\.?<\w+>.*$|\.<locals>\..*$", "", code.co_qualname)


def serve(out: Path, arguments: list[str]) -> None:
    """Be the traced daemon."""
    recorder, own = Recorder(), os.getpid()

    def save() -> None:
        if os.getpid() == own:
            out.write_text(json.dumps([[attempt, *name] for name, attempt in recorder.steps.items()]))

    atexit.register(save)
    sys.argv = ["palyra", *arguments]
    module, function = program()
    palyra = getattr(importlib.import_module(module), function)
    recorder.start()
    palyra()


def program() -> list[str]:
    """Return the module and the function that are ``palyra``, as pyproject.toml has it."""
    entry: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]["palyra"]
    return entry.split(":")


def trace() -> Trace:
    with tempfile.TemporaryDirectory(prefix="palyra-trace-") as folder:
        home, out = Path(folder), Path(folder) / "steps.json"
        (home / "config.toml").write_text("")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PALYRA_")}
        environment |= {"PALYRA_CONFIG": str(home / "config.toml"), "PALYRA_STATE_DIR": str(home / "state")}
        environment["PYTHONPATH"] = str(SOURCE)
        module, function = program()
        up = ["up", "--port", "0", "--json", "--no-browser"]
        daemon = subprocess.Popen(
            [sys.executable, str(Path(__file__)), "--serve", str(out), *up],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert daemon.stdout is not None
            url = json.loads(daemon.stdout.readline())["data"]["url"]

            def palyra(*arguments: str) -> Any:
                words = [sys.executable, "-c", f"from {module} import {function}; {function}()", *arguments, "--json"]
                done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
                return json.loads(done.stdout)["data"]

            token = palyra("token", "create", "--principal", PRINCIPAL)["token"]
            result, helpers = asyncio.run(call_as_agent(url, token, daemon.pid, palyra))
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.communicate(timeout=60)
        steps = [(attempt, module, function) for attempt, module, function in json.loads(out.read_text())]
    return Trace(steps, helpers, result)


async def call_as_agent(url: str, token: str, daemon: int, palyra: Any) -> tuple[dict[str, Any], list[str]]:
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    async def mark(request: Any) -> None:
        if b'"tools/call"' in request.content:
            request.headers[MARK] = "1"

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60, event_hooks={"request": [mark]}) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        await client.list_tools()
        await wait_until_quiet(daemon)
        asked = await client.call_tool(TOOL, ARGUMENTS)
        approval = (asked.meta or {})["dev.palyra/approval_id"]
        await asyncio.to_thread(palyra, "approvals", "approve", approval, "--yes")
        await wait_until_quiet(daemon)
        ran = await client.call_tool(TOOL, ARGUMENTS)
        helpers = helpers_of(daemon)
    assert ran.structured_content is not None, ran
    return ran.structured_content, helpers


async def wait_until_quiet(daemon: int) -> None:
    """Wait until the start of the daemon and what others asked of it are over."""
    until, used, since = time.monotonic() + MOST_SECONDS, -1, time.monotonic()
    while (now := time.monotonic()) < until and now - since < QUIET_SECONDS:
        spent = sum(processor_ticks(process) for process in (daemon, *descendants(daemon)))
        if spent != used:
            used, since = spent, now
        await asyncio.sleep(0.05)


def processor_ticks(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def descendants(process: int) -> list[int]:
    try:
        found = [
            int(child)
            for task in Path(f"/proc/{process}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return []
    return found + [each for child in found for each in descendants(child)]


def helpers_of(daemon: int) -> list[str]:
    """Name the modules that the daemon's helper processes were started with."""
    found: set[str] = set()
    for process in descendants(daemon):
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        paths = re.findall(re.escape(f"{SOURCE}/") + r"([\w/]+)\.py\b", words)
        found.update(re.findall(r"\bpalyra(?:\.\w+)+", words) or [path.replace("/", ".") for path in paths])
    return sorted(found)


def visits_of(steps: list[tuple[int, str, str]]) -> list[Visit]:
    """Take the modules in the order of their first touch, without root modules, and cut where the package changes."""
    functions: dict[str, list[str]] = {}
    attempts: dict[str, int] = {}
    for attempt, module, function in steps:
        attempts.setdefault(module, attempt)
        functions.setdefault(module, [])
        if function and function not in functions[module]:
            functions[module].append(function)
    packaged = [module for module in functions if module.count(".") > 1]
    return [
        Visit(attempts[first], package, {module: functions[module] for module in (first, *rest)})
        for package, (first, *rest) in groupby(packaged, lambda module: module.split(".")[1])
    ]


def root_modules(steps: list[tuple[int, str, str]]) -> list[str]:
    return sorted({module for _, module, _ in steps if module.count(".") < 2})


def count(steps: list[tuple[int, str, str]]) -> dict[str, int]:
    return {
        "modules": len({module for _, module, _ in steps}),
        "root modules": len(root_modules(steps)),
        "crossings": len(visits_of(steps)) - 1,
    }


def entries(steps: list[tuple[int, str, str]]) -> str:
    counted = Counter(visit.package for visit in visits_of(steps))
    return ", ".join(f"{package} {times}" for package, times in sorted(counted.items(), key=lambda p: (-p[1], p[0])))


def machine() -> str:
    """Say what of the machine decides which way a sandbox is built."""
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    groups = "v2" if Path("/sys/fs/cgroup/cgroup.controllers").exists() else "v1"
    return f"{platform.machine()}, as {user}, with cgroup {groups}"


TEXT = """<!-- Written by scripts/trace_one_call.py from a traced call; run it again when the way of a call changes. -->

# One call, from the socket to the signed statement

An agent calls `process.run` over MCP. Policy requires a person's approval. So the first answer asks for one, and
nothing has run. A person approves on the command line. The agent makes the same call again. It runs under bubblewrap,
in Tier C. The daemon answers once the signed statement is in the journal. [The pipeline](pipeline.md) explains the
stages and their promises, and [a table](../../src/palyra/pipeline/README.md) names the module of each. This page shows
the code in the order in which it runs.

The trace is the first such call of a real daemon on {machine}.
Another machine may build the sandbox another way.

## Counts

| | at 117b6da | now |
|---|---|---|
| modules touched | {before[modules]} | {now[modules]} |
| of these, root modules | {before[root modules]} | {now[root modules]} |
| crossings | {before[crossings]} | {now[crossings]} |

Entries at 117b6da: {before_entries}.

Entries now: {entries}.

- A call **touches** a module if a function of that module runs for the call. The call lasts from the first bytes of a
  request until its answer is written, for both requests. Tasks and threads that work for the call count. The agent, the
  person's command, other work of the daemon and the import of a module do not count.
- The **way** lists the touched modules in the order of their first function. A return adds nothing, and neither does a
  second call of the same module. Root modules (such as `palyra.errors`) serve all packages and are not part of the way.
- A **crossing** is a step of the way from a module of one top package to a module of another.
- The call **enters** a top package once for each unbroken stretch of the way inside it.

`python scripts/trace_one_call.py --counts` prints the counts. `tests/contract/test_one_call.py` traces the call again
and compares the modules and the order of the packages with this page.

## Helper processes

Processes beside the daemon: {helpers}, and the bubblewrap that they start.
Their own functions are not part of the way.

## The way

Each module stands where the call touches it first, with all its functions in the order of their first call. So a
function under the first heading may run only for the second request: its module was touched before."""


HEADINGS = {
    1: "### Modules of the first request, which needs approval",
    2: "### Further modules of the second request, which runs",
}


def write_page(traced: Trace) -> str:
    lines = [
        TEXT.format(
            machine=machine(),
            before=BEFORE,
            before_entries=BEFORE_ENTRIES,
            now=count(traced.steps),
            entries=entries(traced.steps),
            helpers=", ".join(f"`{name}`" for name in traced.helpers) or "none",
        )
    ]
    attempt = 0
    for number, visit in enumerate(visits_of(traced.steps), 1):
        if visit.attempt != attempt:
            attempt = visit.attempt
            lines += ["", HEADINGS[attempt], ""]
        lines += [f"{number}. **{visit.package}**"]
        lines += [write_module(module, functions) for module, functions in visit.modules.items()]
    roots = ", ".join(link(module) for module in root_modules(traced.steps))
    return "\n".join([*lines, "", f"Root modules: {roots}.", ""])


def write_module(module: str, functions: list[str]) -> str:
    return f"    - {link(module)}: {', '.join(f'`{name}`' for name in functions) or 'a value'}"


def link(module: str) -> str:
    path = SOURCE / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return f"[`{module}`](../../{file.relative_to(ROOT)})"


class Page(NamedTuple):
    machine: str
    modules: set[str]
    packages: list[str]
    helpers: set[str]
    functions: dict[str, list[str]]


def read_page(text: str) -> Page:
    way = text.partition("## The way")[2]
    rows = re.findall(r"^    - \[`([\w.]+)`\]\(\S+\): (.*)$", way, re.MULTILINE)
    helpers = text.partition("## Helper processes")[2].partition("## The way")[0]
    return Page(
        machine=re.search(r"real daemon on (.+)\.$", text, re.MULTILINE)[1],  # type: ignore[index]
        modules=set(re.findall(r"\[`([\w.]+)`\]", way)),
        packages=re.findall(r"^\d+\. \*\*(\w+)\*\*$", way, re.MULTILINE),
        helpers=set(re.findall(r"`([\w.]+)`", helpers)),
        functions={module: re.findall(r"`([\w.]+)`", functions) for module, functions in rows},
    )


def differences(old: Page, new: Page) -> list[str]:
    """Compare two pages. Those of two kinds of machine agree outside the packages that build a sandbox."""
    same = old.machine == new.machine
    left, right = ({name for name in page.modules if same or not BUILDS.match(name)} for page in (old, new))
    found = [f"no longer touched: {name}" for name in sorted(left - right)]
    found += [f"touched and not on the page: {name}" for name in sorted(right - left)]
    if same and old.packages != new.packages:
        found.append(f"packages: {' '.join(old.packages)} on the page, {' '.join(new.packages)} now")
    if old.helpers != new.helpers:
        found.append(f"helper processes: {sorted(old.helpers)} on the page, {sorted(new.helpers)} now")
    return found


def main() -> int:
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--check", action="store_true", help="write nothing, compare with the page")
    how.add_argument("--counts", action="store_true", help="write nothing, print the counts")
    chosen = parser.parse_args()
    traced = trace()
    assert (traced.result["tier"], traced.result["stdout"]) == ("c", "hello\n"), traced.result
    if chosen.counts:
        print(*(f"{name}: {value}" for name, value in count(traced.steps).items()), sep="\n")
        print(f"entries: {entries(traced.steps)}")
        return 0
    page = write_page(traced)
    if not chosen.check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    found = differences(read_page(PAGE.read_text(encoding="utf-8")), read_page(page))
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
