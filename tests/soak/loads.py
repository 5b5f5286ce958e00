"""The kinds of load that run in the daemon itself, in skills and in programs. Each is one short story of a caller."""

import subprocess
import threading
import time
from collections.abc import Callable

from fakes.daemon import Place
from palyra.errors import PalyraError
from palyra.secret import Secret
from soak.caller import NEEDS_APPROVAL, Caller, Ended
from soak.observations import OK
from soak.settings import APPROVAL_SECONDS, ELSEWHERE, HOST, WEB_PORT

SHOP = f"http://{HOST}:{WEB_PORT}"
# Command lines are whole interpreters: never more than two beside the rest.
_COMMAND_LINES = threading.Semaphore(2)
_POLICY = threading.Lock()


def echo(caller: Caller) -> None:
    text = caller.unique()
    ended = caller.call("echo", "echo", {"text": text})
    if ended.code == OK and ended.result != {"text": text}:
        caller.observed.is_wrong(f"echo of {text} returned {ended.result}")


def read(caller: Caller) -> None:
    ended = caller.call("read", "fs.read", {"path": "greeting.txt"})
    if ended.code == OK and ended.result["content"] != "hello from the workspace\n":
        caller.observed.is_wrong(f"fs.read returned {ended.result}")
    if caller.random.random() < 0.2:
        caller.call("read", "fs.search", {"query": "workspace", "path": "greeting.txt"})


def skill(caller: Caller) -> None:
    caller.call("skill", "skill.hello.echo", {"name": caller.unique()})


def program(caller: Caller) -> None:
    """Tier C."""
    choice = caller.random.random()
    if choice < 0.5:
        ended = caller.call("program", "process.run", {"command": "cat", "args": ["greeting.txt"]})
        if ended.code == OK and ended.result["stdout"] != "hello from the workspace\n":
            caller.observed.is_wrong(f"cat printed {ended.result}")
    elif choice < 0.8:
        caller.call("program", "process.run", {"command": "sleep", "args": ["0.3"]})
    else:
        arguments = {"command": "sleep", "args": ["20"], "timeout_ms": 200}
        if caller.call("program_timeout", "process.run", arguments).code == OK:
            caller.observed.is_wrong("a program of twenty seconds ended within its deadline of 200 ms")


def background(caller: Caller) -> None:
    """A program that is left running; sometimes for ever, as far as its caller cares."""
    started = caller.call("background", "process.start", {"command": "sleep", "args": ["2"], "timeout_ms": 4_000})
    if started.code == OK and caller.random.random() < 0.7:
        handle = {"handle": started.result["handle"]}
        caller.call("background", "process.logs", handle)
        caller.call("background", "process.stop", handle)


def limited(caller: Caller) -> None:
    """Tier B, without a daemon."""
    options = ("run", "--tier", "b", "--egress", "preflight", "--workspace", str(caller.stack.workspace))
    _command(caller, "limited", caller.stack.home.place, *options, "--json", "--", "cat", "greeting.txt")


def command_line(caller: Caller) -> None:
    words = ("call", "echo", "--input", '{"text":"typed"}', "--json")
    _command(caller, "command_line", caller.stack.home.place, *words)


def _command(caller: Caller, kind: str, place: Place, *words: str) -> None:
    with _COMMAND_LINES:
        begun = time.monotonic()
        try:
            answer = place.palyra(*words)
        except subprocess.TimeoutExpired:
            # The machine stood still for longer than a command may take, or the command does.
            caller.observed.note(kind, "command_line.late", time.monotonic() - begun, caller.stack.pace.awake)
            return
        try:
            code = OK if answer.status == 0 else str(answer.error["code"])
        except (ValueError, KeyError):
            code, caller_saw = "command_line.no_document", f"{words}: {answer.status} {answer.stdout} {answer.stderr}"
            caller.observed.is_wrong(caller_saw[:600])
        caller.observed.note(kind, code, time.monotonic() - begun, caller.stack.pace.awake, answer.stdout)


def fetch(caller: Caller) -> None:
    path = caller.random.choice(("/", "/bytes", "/more"))
    caller.call("fetch", "http.fetch", {"url": SHOP + path})
    if caller.random.random() < 0.2:
        ended = caller.call("fetch_elsewhere", "http.fetch", {"url": f"http://{ELSEWHERE}/"})
        if ended.code == OK:
            caller.observed.is_wrong("a host that is not allowed was fetched")


def curl(caller: Caller) -> None:
    """A program in Tier C that reaches the network through the proxy."""
    arguments = {"command": "curl", "args": ["-sS", "--max-time", "20", SHOP + "/"]}
    reached(caller, "curl_page", caller.call("curl", "process.run", arguments))


def reached(caller: Caller, kind: str, ended: Ended) -> None:
    """A program that ran well may still not have had its page."""
    if ended.code != OK:
        return
    status, printed = ended.result["exit_code"], ended.result["stdout"]
    if status == 0 and "Orders" not in printed:
        caller.observed.is_wrong(f"curl printed {ended.result}")
    caller.observed.note(kind, OK if status == 0 else f"curl status {status}", 0.0, caller.stack.pace.awake, printed)


def deadline(caller: Caller) -> None:
    ended = caller.call("deadline", "sleep", {"seconds": 8}, timeout_ms=300)
    if ended.code == OK:
        caller.observed.is_wrong("a call of eight seconds ended within its deadline of 300 ms")


def denied(caller: Caller) -> None:
    """A door that policy does not know."""
    if caller.call("denied", "echo", {"text": "x"}, channel="carrier-pigeon").code == OK:
        caller.observed.is_wrong("a call through an unknown channel was allowed")


def budget(caller: Caller) -> None:
    """More calls at once than the run has budget for."""
    try:
        run_id = caller.client.start_run({"calls": 3}, principal=caller.principal).run_id
    except PalyraError:
        return
    codes: list[str] = []
    caller.beside(
        *[lambda: codes.append(caller.call("budget", "echo", {"text": "x"}, run_id=run_id).code) for _ in range(5)]
    )
    if codes.count(OK) > 3:
        caller.observed.is_wrong(f"five calls in a run of three ended as {codes}")


def token(caller: Caller) -> None:
    """An agent's own token, until it is revoked."""
    try:
        made = caller.client.create_token(caller.principal, ttl_seconds=600)
    except PalyraError:
        return
    with caller.stack.home.client(made.token.reveal()) as own:
        caller.noted("token", lambda: own.call("echo", {"text": "mine"}, timeout_ms=20_000))
        try:
            caller.client.revoke_token(made.view.token_id)
        except PalyraError:
            return
        if caller.noted("token_revoked", lambda: own.call("echo", {"text": "mine"}, timeout_ms=20_000)).code == OK:
            caller.observed.is_wrong("a revoked token was taken")


def look(caller: Caller) -> None:
    caller.noted("look", lambda: caller.client.status())
    caller.noted("look", lambda: caller.client.metrics())


def verify(caller: Caller) -> None:
    """The whole journal, offline, while it is being written."""
    _command(caller, "verify", caller.stack.home.place, "journal", "verify", "--json")


FORBID = (
    '@id("soak")\nforbid (principal == Agent::"{who}", action == Action::"tool.execute", resource == Tool::"sleep");\n'
)


def policy(caller: Caller) -> None:
    """Policies change under load: stricter, broken, as before."""
    with _POLICY:
        file = caller.stack.home.place.policies / "soak.cedar"
        choice = caller.random.random()
        if choice < 0.5:
            file.write_text(FORBID.format(who=caller.name))
        elif choice < 0.75:
            file.write_text("forbid (principal, action ==")
        else:
            file.unlink(missing_ok=True)
        caller.call("policy", "sleep", {"seconds": 0})
        time.sleep(0.5)
        caller.call("policy", "sleep", {"seconds": 0})
        file.unlink(missing_ok=True)


def approval(caller: Caller) -> None:
    """A file is written with a person's yes, and not without."""
    path, content = f"made/{caller.unique()}.txt", f"by {caller.name}"
    write = {"path": path, "content": content}
    options = {"tier": "worker"} if caller.random.random() < 0.3 else {}
    kind = "worker_write" if options else "write"
    asked = caller.call("asked", "fs.write", write, **options)
    if asked.code == OK:
        caller.observed.is_wrong(f"{path} was written without a person's yes")
    if asked.code != NEEDS_APPROVAL:
        return
    caller.observed.wrote(path, content, "no")
    choice = caller.random.random()
    if choice < 0.15:
        if caller.noted("deny", lambda: caller.client.deny(asked.approval_id)).code == OK:
            after = caller.call("after_deny", "fs.write", write, **options)
            if after.code == OK:
                caller.observed.is_wrong(f"{path} was written after a no")
        return
    if choice < 0.25:
        caller.noted("withdraw", lambda: caller.client.withdraw(asked.approval_id))
        return
    if choice < 0.35:
        caller.stack.pace.sleep(APPROVAL_SECONDS + 1.5)
    if caller.noted("approve", lambda: caller.client.approve(asked.approval_id)).code != OK:
        return
    caller.observed.wrote(path, content, "perhaps")
    done = caller.call(kind, "fs.write", write, **options)
    if done.code == OK:
        caller.observed.wrote(path, content, "yes")
        again = caller.call("used_up", "fs.write", {**write, "mode": "create"}, **options)
        if again.code == OK:
            caller.observed.is_wrong(f"one yes for {path} was used twice")
        caller.stack.shelf.written(path, content)


def waiting(caller: Caller) -> None:
    """Asked of the person while the caller waits; see ``operator``."""
    path = f"made/wait-{caller.unique()}.txt"
    caller.observed.wrote(path, "waited for", "perhaps")
    ended = caller.call("waiting", "fs.write", {"path": path, "content": "waited for"}, wait_ms=6_000)
    if ended.code == OK:
        caller.observed.wrote(path, "waited for", "yes")
        caller.stack.shelf.written(path, "waited for")


def secret(caller: Caller) -> None:
    ref = f"global/{caller.name}"
    caller.noted("secret", lambda: caller.client.put_secret(ref, Secret(f"{caller.random.getrandbits(128):032x}")))
    if caller.random.random() < 0.3:
        caller.noted("secret", lambda: caller.client.delete_secret(ref))


KINDS: dict[str, tuple[int, Callable[[Caller], None]]] = {
    "echo": (20, echo),
    "read": (10, read),
    "skill": (14, skill),
    "program": (12, program),
    "background": (4, background),
    "limited": (3, limited),
    "command_line": (2, command_line),
    "fetch": (10, fetch),
    "curl": (5, curl),
    "deadline": (3, deadline),
    "denied": (3, denied),
    "budget": (4, budget),
    "token": (3, token),
    "look": (3, look),
    "policy": (2, policy),
    "approval": (10, approval),
    "waiting": (4, waiting),
    "secret": (3, secret),
}
