"""``palyra run``: one command in the sandbox, without a daemon, through the same pipeline as every call."""

import asyncio
import contextlib
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.daemon.process_setup import keep_memory_private, made_to_stay
from palyra.errors import PalyraError, RemoteError
from palyra.sandbox.limits import MAX_STDIN_BYTES

if TYPE_CHECKING:
    from palyra.pipeline.domain.call import CallRecord

# Standard input of ``palyra run``: the content so far, and a pipe for what comes while the program runs.
#
# The program never gets this process's own standard input: a file could be opened again through its descriptor for
# writing, a directory leads to its parent, a terminal can be written to. It gets a pipe, which a thread fills as the
# program takes from it.

_CHUNK_BYTES: Final = 64 * 1024
# The thread ends at once when it is stopped, unless another process took the input that it waits for.
_JOIN_SECONDS: Final = 1.0


def read_ready(source: int, most: int = MAX_STDIN_BYTES) -> tuple[bytes, bool]:
    """Read without waiting. Returns the content, and whether there is or may be more of it."""
    content = b""
    while len(content) <= most:
        if not _ready(source):
            return content, True
        part = os.read(source, _CHUNK_BYTES)
        if not part:
            return content, False
        content += part
    return content, True


def _ready(source: int) -> bool:
    poll = select.poll()
    poll.register(source, select.POLLIN)
    return bool(poll.poll(0))


class LiveInput:
    """``reader`` is for the program. ``close`` ends the thread, whatever the source does."""

    def __init__(self, source: int, first: bytes = b"") -> None:
        self.reader, self._writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._writer, False)
        self._stopped, self._stop = os.pipe2(os.O_CLOEXEC)
        self._source = source
        self._first = first
        self._thread = threading.Thread(target=self._pump, name="live input", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.close(self._stop)
        os.close(self.reader)
        self._thread.join(_JOIN_SECONDS)

    def _pump(self) -> None:
        try:
            content: bytes | None = self._first
            while content is not None and self._pass_on(content):
                content = self._next()
        except OSError:
            # The program is gone, or the source is: either way there is nothing more to pass on.
            return
        finally:
            os.close(self._writer)
            os.close(self._stopped)

    def _next(self) -> bytes | None:
        if not self._wait(self._source, select.POLLIN):
            return None
        return os.read(self._source, _CHUNK_BYTES) or None

    def _pass_on(self, content: bytes) -> bool:
        view = memoryview(content)
        while view:
            if not self._wait(self._writer, select.POLLOUT):
                return False
            try:
                view = view[os.write(self._writer, view) :]
            except BlockingIOError:
                continue
        return True

    def _wait(self, descriptor: int, event: int) -> bool:
        """Wait for the descriptor. Returns False when it is time to stop."""
        poll = select.poll()
        poll.register(descriptor, event)
        poll.register(self._stopped, 0)
        return all(ready != self._stopped for ready, _ in poll.poll())


# As shells and timeout(1) have it.
EXIT_TIMED_OUT: Final = 124
EXIT_REFUSED: Final = 125
EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127
EXIT_SIGNAL_BASE: Final = 128
EXIT_KILLED: Final = 137


class NotRun(RemoteError):
    """Why the command did not run to its end, with the kind of refusal beside the code."""

    def as_dict(self) -> dict[str, Any]:
        shown = super().as_dict()
        return {**shown, "kind": self.details.get("kind") or _KINDS.get(self.remote_code, "runtime_failure")}


# Refusals that come before the sandbox is asked.
_KINDS: Final = {
    "arguments.schema_mismatch": "invalid_input",
    "arguments.too_large": "invalid_input",
    # A word that is not UTF-8 has no form in a signed record.
    "json.not_canonical": "invalid_input",
    "call.timed_out": "timed_out",
    "call.unenforceable": "unsupported_platform",
    "sandbox.bad_profile": "invalid_input",
    "workspace.bad_root": "invalid_input",
    "workspace.holds_palyra": "workspace_scope_denied",
    "tool.unknown": "disabled",
    "call.denied": "disabled",
}


@click.command(context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--tier", type=click.Choice(["b", "c"]), help="Where to run it: b limits a process, c isolates it.")
@click.option("--workspace", metavar="DIR", help="The folder it works in; the current one by default.")
@click.option("--read-only", is_flag=True, help="Let it see the workspace without changing it.")
@click.option("--egress", type=click.Choice(["none", "preflight", "strict"]), help="How its network is controlled.")
@click.option("--allow-host", "hosts", multiple=True, metavar="HOST[:PORT]", help="A host it may reach; repeatable.")
@click.option("--cpu-seconds", type=click.IntRange(1), help="Processor time of each process.")
@click.option("--memory", metavar="BYTES", help="Memory, with K, M or G behind the number.")
@click.option("--pids", type=click.IntRange(1), help="Processes and threads at once.")
@click.option("--max-output", metavar="BYTES", help="Output in all, with K, M or G behind the number.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="End it after this long.")
@click.option("--allow-interpreters", is_flag=True, help="Let shells, interpreters and programs that run others run.")
@click.option("--env", "variables", multiple=True, metavar="K=V", help="A variable it gets; repeatable.")
@click.option("--show-plan", is_flag=True, help="Print how tier c would isolate it here, and run nothing.")
@click.option("--platform", type=click.Choice(["linux", "macos"]), default="linux", help="The system of --show-plan.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_invocation
def run(invocation: Invocation, /, command: tuple[str, ...], **options: Any) -> None:
    """Run one command in the sandbox, without a daemon.

    Exits with the command's own status; 124 when it took too long, 125 when it was refused before it started, 126 and
    127 as shells do, 137 when a limit killed it.
    """
    try:
        _give_overrides(invocation, options)
        if options["show_plan"]:
            _show_plan(invocation, command, options["platform"])
            return
        record = _run(invocation, command, options)
    except PalyraError as error:
        invocation.output.error(_not_run(error) if error.code in _KINDS else error)
        status = EXIT_REFUSED
    else:
        status = _report(invocation, record)
    click.get_current_context().exit(status)


def _show_plan(invocation: Invocation, command: tuple[str, ...], platform: str) -> None:
    """Print the plan from the settings alone. Policy may oblige a call to more."""
    from palyra.executors.process.executor import compile_profile
    from palyra.pipeline.domain.call import ExecutionPlan
    from palyra.pipeline.domain.spec import ToolTier
    from palyra.sandbox.domain.plan import plan_isolated
    from palyra.sandbox.domain.seatbelt import seatbelt_profile
    from palyra.sandbox.runner import gather_facts

    settings = invocation.located_settings
    call = ExecutionPlan(
        call_id="",
        run_id="",
        tool="process.run",
        arguments={"command": command[0], "args": list(command[1:])},
        workspace=settings.workspace.root,
        timeout_ms=settings.tools.timeout_ms,
        max_output_bytes=settings.sandbox.max_output_bytes,
        tier=ToolTier.C,
    )
    profile = compile_profile(call, settings.sandbox, settings.workspace.protected, watched=True)
    if platform == "macos":
        lines = seatbelt_profile(profile, temporary="/private/tmp/palyra").splitlines()
    else:
        plan = plan_isolated(profile, tuple(map(os.fsencode, command)), gather_facts(profile)[0])
        lines = [f"# {each.reason}\n{b' '.join(each.arguments).decode(errors='replace')}" for each in plan.lines]
    invocation.output.data({"platform": platform, "plan": lines}, lambda _: "\n".join(lines))


def _not_run(error: PalyraError) -> NotRun:
    return NotRun(error.message, remote_code=error.code, hint=error.hint, exit_code=error.exit_code, **error.details)


def _give_overrides(invocation: Invocation, options: dict[str, Any]) -> None:
    """Turn the options into settings for this one run: a call takes nothing from anywhere else."""
    given = invocation.overrides
    given["workspace.root"] = os.path.realpath(options["workspace"] or os.getcwd())
    chosen = {
        "tier": options["tier"],
        "read_only": options["read_only"] or None,
        "egress": options["egress"],
        "allowed_hosts": list(options["hosts"]) or None,
        "cpu_seconds": options["cpu_seconds"],
        "memory_bytes": _bytes(options["memory"], "--memory"),
        "pids": options["pids"],
        "max_output_bytes": _bytes(options["max_output"], "--max-output"),
        "allow_interpreters": options["allow_interpreters"] or None,
    }
    given |= {f"sandbox.{key}": value for key, value in chosen.items() if value is not None}
    if options["hosts"]:
        # The person at the keyboard is the operator of this one run.
        given["egress.allowed_hosts"] = list(options["hosts"])
    if chosen["max_output_bytes"] is None and _is_default(invocation, "sandbox.max_output_bytes"):
        from palyra.sandbox.limits import PERSON_OUTPUT_BYTES

        given["sandbox.max_output_bytes"] = PERSON_OUTPUT_BYTES
    if options["variables"]:
        given["sandbox.env"] = dict(_variable(each) for each in options["variables"])
    # The person who types the command has seen it: there is nobody else to ask.
    given["tools.allowed"] = ["process.run"]
    given["tools.preapproved"] = ["process.run"]


def _is_default(invocation: Invocation, setting: str) -> bool:
    from palyra.config.load import OriginKind
    from palyra.daemon.settings import load_settings

    loaded = load_settings(invocation.locations.find_config_file(), invocation.environ, invocation.overrides)
    return loaded.origins[setting].kind is OriginKind.DEFAULT


def _bytes(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    scale = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}.get(unit)
    if scale is None or not (digits.isascii() and digits.isdigit()):
        raise click.BadParameter(f"{text!r} is not a number of bytes", param_hint=option)
    return int(digits) * scale


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is not K=V", param_hint="--env")
    return name, value


def _run(invocation: Invocation, command: tuple[str, ...], options: dict[str, Any]) -> "CallRecord":
    with made_to_stay():
        import uvloop

        from palyra.daemon.gateway_wiring import Gateway
        from palyra.ids import Principal
        from palyra.pipeline.domain.call import CallRequest

    settings = invocation.located_settings
    arguments: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    source = _source()
    content, more = (b"", False) if source is None else read_ready(source)
    if content and not more:
        import base64

        arguments |= {"stdin": base64.b64encode(content).decode(), "stdin_encoding": "base64"}
    owner = settings.access.operators[0] if settings.access.operators else "user:operator"
    request = CallRequest(
        tool="process.run",
        arguments=arguments,
        principal=Principal.parse(owner),
        actor=owner,
        channel="cli",
        timeout_ms=None if options["timeout"] is None else max(1, round(options["timeout"] * 1000)),
    )
    places = (invocation.state_dir, invocation.locations.policy_dir(settings.policy.dir))
    keep_memory_private()
    gateway = Gateway(settings, *places, channel="cli", settings_file=invocation.config_path)

    async def call() -> "CallRecord":
        with contextlib.ExitStack() as stack:
            if source is not None and more:
                live = stack.enter_context(contextlib.closing(LiveInput(source, content)))
                gateway.processes.tools.live_input = live.reader
            echo = _Echo(asyncio.current_task())
            if not invocation.output.json:
                gateway.processes.tools.sink = echo
            try:
                return await gateway.broker.call(request)
            except asyncio.CancelledError:
                if echo.unread:
                    raise BrokenPipeError from None
                raise
            finally:
                await gateway.processes.close()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(call())
    finally:
        gateway.close()


def _source() -> int | None:
    """Where input is piped from; not a terminal, which belongs to the person."""
    try:
        source = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return None if os.isatty(source) else source


class _Echo:
    """Prints what comes. Where nobody reads it any more the program is ended, as by SIGPIPE."""

    def __init__(self, call: "asyncio.Task[Any] | None") -> None:
        self._call = call
        self.unread = False

    def __call__(self, stream: str, chunk: bytes) -> None:
        out = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        try:
            out.write(chunk)
            out.flush()
        except BrokenPipeError:
            if self._call is not None and not self.unread:
                self.unread = True
                self._call.cancel()


def _report(invocation: Invocation, record: "CallRecord") -> int:
    result = record.result or {}
    error = None if record.error is None else _as_error(record)
    if error is not None:
        if result:
            error.details["result"] = result
        invocation.output.error(error)
        return _status_of_error(record)
    data = {
        **{key: value for key, value in result.items() if key != "killed_by"},
        "enforcement": record.receipt,
        "attestation": record.attestation,
        "call_id": record.call_id,
    }
    # The output itself went out as it came.
    invocation.output.data(data, lambda _: None)
    if not invocation.output.json:
        for line in result.get("protected", {}).get("changes", ()):
            click.echo(f"palyra: protected: {line}", err=True)
        if "protected" in result:
            click.echo(f"palyra: {result['protected']['hint']}", err=True)
    if result["killed_by"] is not None:
        return EXIT_KILLED
    if result["exit_code"] is not None:
        return int(result["exit_code"])
    return EXIT_SIGNAL_BASE + int(result["signal"])


def _as_error(record: "CallRecord") -> "NotRun":
    said = record.error or {}
    details = {**said.get("details", {}), "call_id": record.call_id}
    return NotRun(said["message"], remote_code=said["code"], hint=said["hint"], **details)


def _status_of_error(record: "CallRecord") -> int:
    said = record.error or {}
    match said["code"]:
        case "sandbox.timed_out" | "call.timed_out":
            return EXIT_TIMED_OUT
        case "sandbox.quota_exceeded":
            return EXIT_KILLED
        case "sandbox.spawn_failed":
            return EXIT_NOT_FOUND if said.get("details", {}).get("errno") == 2 else EXIT_NOT_EXECUTABLE
    return EXIT_REFUSED
