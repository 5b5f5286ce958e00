"""``palyra doctor``: what this machine can enforce, and with ``--attack`` whether it does."""

import asyncio
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Final

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from palyra.browser.fences import FenceReceipt
    from palyra.doctor.report import Finding, Probe, Report
    from palyra.sandbox.attacks.attack_report import AttackReport
    from palyra.sandbox.attacks.attempt import Attempt
    from palyra.sandbox.attacks.verdict import Verdict
    from palyra.sandbox.probe import Capabilities
    from palyra.sandbox.profile import SandboxTier

DIGEST_CHARS_SHOWN: Final = 16
# (module (func (export "run") (result i32) (i32.const 42)))
_SMALLEST_GUEST: Final = bytes.fromhex("0061736d010000000105016000017f030201000707010372756e00000a06010400412a0b")
_OTHER_NAMESPACES: Final = (
    "pid_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "cgroup_namespace",
)


@click.command()
@click.option(
    "--attack", is_flag=True, help="Try to break out of the sandbox on this machine, and list what was tried."
)
@click.option("--tier", type=click.Choice(["b", "c"]), help="With --attack: only this tier.")
@json_option
@pass_invocation
def doctor(invocation: Invocation, attack: bool, tier: str | None) -> None:
    """Show what this machine can enforce.

    Exits with 6 when something is missing that Palyra needs to work. With --attack, makes escape attempts inside the
    real sandbox and exits with 1 when one got through that the tier promises to stop.
    """
    if tier and not attack:
        raise click.UsageError("--tier goes with --attack")
    if attack:
        _attack(invocation, tier)
        return
    from palyra.doctor.report import examine

    with invocation.output.working("Looking at this machine"):
        report = examine(probes(invocation))
    if report.unmet:
        _show(invocation, report)
        report.raise_if_not_ready()
    invocation.output.data(report, lambda _: _show(invocation, report))


def probes(invocation: Invocation) -> "tuple[Probe, ...]":
    """The table of questions. What is not required yet belongs to tiers that say so themselves when they start."""
    from palyra.doctor import host, kernel
    from palyra.doctor.report import Probe

    state = invocation.state_path
    rows = (
        ("python", "runs Palyra", True, host.python),
        ("state directory", "keeps keys, tokens and the journal private", True, lambda: host.state_directory(state)),
        ("durable writes", "make a record outlive a power cut", True, lambda: host.durable_writes(state)),
        ("sqlite", "holds the journal", True, lambda: host.sqlite(state)),
        ("clock", "dates records and ends approvals", True, lambda: host.clock(state)),
        ("policy bundle", "decides every call", True, lambda: policy_bundle(invocation)),
        ("openat2", "keeps the file tools in their workspace", True, kernel.openat2),
        ("landlock", "limits files and TCP without privileges", False, kernel.landlock),
        ("seccomp", "limits system calls", False, kernel.seccomp),
        ("user namespaces", "isolate processes without root", False, kernel.user_namespaces),
        ("bubblewrap", "builds Tier C sandboxes", False, host.bubblewrap),
        ("other namespaces", "hide the host's processes and network", False, lambda: sandbox_layers(_OTHER_NAMESPACES)),
        ("nested namespaces", "can be switched off", False, lambda: sandbox_layers(("nested_userns_off",))),
        ("read-only host", "while a sandbox is built", False, lambda: sandbox_layers(("host_read_only",))),
        ("cgroups", "limit whole process trees", False, kernel.cgroups),
        ("webassembly", "runs skills in confined workers", False, webassembly),
        ("browser", "runs behind its fences", False, lambda: browser_fences(invocation)),
        ("daemon", "answers calls", False, lambda: running_daemon(invocation)),
    )
    return tuple(Probe(name=name, purpose=purpose, required=req, look=look) for name, purpose, req, look in rows)


def sandbox_layers(layers: tuple[str, ...]) -> "Finding":
    """Each layer built for real with bubblewrap, as this user."""
    from palyra.doctor.report import missing, ok
    from palyra.sandbox.receipt import Layer

    found = [_capabilities().of(Layer(layer)) for layer in layers]
    tried = [each for each in found if each is not None]
    if not tried:
        return missing("not tried: there is no bubblewrap to build them with", "apt install bubblewrap")
    lacking = [each for each in tried if not each.usable]
    if lacking:
        fixes = dict.fromkeys(each.fix for each in lacking)
        return missing("; ".join(each.evidence for each in lacking), "; ".join(fixes))
    return ok("built: " + ", ".join(each.layer.replace("_", " ") for each in tried))


@cache
def _capabilities() -> "Capabilities":
    from palyra.sandbox.probe import examine

    return examine()


def webassembly() -> "Finding":
    """Compiles and runs the smallest guest, in a worker process as skills have it."""
    from pathlib import Path

    from palyra.doctor.report import missing, ok
    from palyra.secret import Secret
    from palyra.wasm.limits import PoolSettings
    from palyra.wasm.runtime import WasmRuntime

    async def tried(folder: str) -> str:
        runtime = WasmRuntime(
            cache_directory=Path(folder), key=Secret("of this probe alone"), pool=PoolSettings(ready=1)
        )
        try:
            outcome = await runtime.run(await runtime.compile(_SMALLEST_GUEST), timeout_ms=10_000)
            engine = " ".join(runtime.pool.engine.split()[:2])
            return f"{engine}: a guest answered {outcome.output!r}"
        finally:
            await runtime.close()

    try:
        with tempfile.TemporaryDirectory() as folder:
            return ok(asyncio.run(tried(folder)))
    except (PalyraError, ImportError, OSError) as error:
        return missing(str(error), getattr(error, "hint", "") or "install Palyra again, with its dependencies")


def browser_fences(invocation: Invocation) -> "Finding":
    """Starts one as sessions have it, and reads every fence back from the running processes."""
    from palyra.doctor.report import missing, ok, warn

    browser = invocation.settings.browser
    if not browser.enabled:
        return ok("switched off by browser.enabled")

    async def tried(folder: str) -> "tuple[str, FenceReceipt]":
        from pathlib import Path

        from palyra.browser.chromium import ChromiumLauncher, ChromiumSettings
        from palyra.browser.process_notes import ProcessNotes
        from palyra.daemons.browserd_parts import GuardListeners

        listeners = GuardListeners()
        try:
            settings = ChromiumSettings(binary=browser.engine or None, allow_no_sandbox=browser.allow_no_sandbox)
            process = await ChromiumLauncher(listeners, ProcessNotes(Path(folder)), settings).start()
            try:
                return process.product, process.receipt
            finally:
                await process.close(graceful=False)
        finally:
            await listeners.close()

    try:
        with tempfile.TemporaryDirectory() as folder:
            product, receipt = asyncio.run(tried(folder))
    except (PalyraError, OSError) as error:
        return missing(str(error), getattr(error, "hint", "") or "apt install chromium-headless-shell bubblewrap")
    held = ", ".join(str(line.fence).replace("_", " ") for line in receipt.lines if line.held)
    if receipt.waived:
        return warn(f"{product} without its own sandbox; up: {held}", "set browser.allow_no_sandbox to false")
    return ok(f"{product}; up: {held}")


def running_daemon(invocation: Invocation) -> "Finding":
    """The daemon of this state directory, wherever it listens."""
    from palyra.client.address import ServerAddress
    from palyra.client.local import find_daemon
    from palyra.doctor import daemon_http
    from palyra.doctor.report import warn

    try:
        address = ServerAddress.parse(find_daemon(invocation.state_path).url)
    except PalyraError as error:
        return warn(error.message, error.hint)
    return daemon_http.daemon(address.host, address.port)


def policy_bundle(invocation: Invocation) -> "Finding":
    """Loads the bundle that a daemon started now would load."""
    from palyra.daemons.entity_directory import directory_of
    from palyra.doctor.report import missing, ok
    from palyra.policy.cedar import CedarEngine
    from palyra.policy.loader import load_bundle

    settings = invocation.settings
    folder = invocation.locations.policy_dir(settings)
    try:
        digest = CedarEngine(load_bundle(folder, directory_of(settings))).bundle_digest
    except PalyraError as error:
        return missing(error.message, error.hint)
    return ok(f"valid, with the files of {folder}, digest {digest[:DIGEST_CHARS_SHOWN]}")


def _show(invocation: Invocation, report: "Report") -> None:
    output = invocation.output
    rows = [
        (check.name, f"{check.status} (required)" if check in report.unmet else check.status, check.evidence)
        for check in report.checks
    ]
    output.table(("check", "result", "evidence"), rows)
    fixes = [(check.name, check.fix) for check in report.checks if check.fix]
    if fixes:
        output.text("")
        output.table(("to improve", "do this"), fixes)


def _attack(invocation: Invocation, tier: str | None) -> None:
    from palyra.sandbox.attacks.attack_runner import attack
    from palyra.sandbox.profile import SandboxTier

    tiers = (SandboxTier(tier),) if tier else (SandboxTier.C, SandboxTier.B)
    protected = tuple(invocation.settings.workspace.protected_names)
    begun: set[tuple[str, str]] = set()

    def progress(where: "SandboxTier", attempt: "Attempt", number: int, total: int) -> None:
        if (where, attempt.kind) not in begun:
            begun.add((where, attempt.kind))
            invocation.output.note(f"tier {where}: attempt {number} of {total}, {attempt.kind}")

    report = asyncio.run(attack(tiers, protected_names=protected, progress=progress))
    if report.escapes or report.idle:
        _show_attack(invocation, report)
        report.raise_if_escaped()
    invocation.output.data(report.as_dict(), lambda _: _show_attack(invocation, report))


def _show_attack(invocation: Invocation, report: "AttackReport") -> None:
    from palyra.sandbox.attacks.verdict import Result

    def shown_result(verdict: "Verdict") -> str:
        told = verdict.result is Result.NOT_BLOCKED and not verdict.promised
        return "not blocked (not promised)" if told else verdict.result

    output = invocation.output
    for kind in dict.fromkeys(each.kind for each in report.verdicts):
        rows = [
            (each.title, each.tier, shown_result(each), each.layer if each.promised else "", each.evidence)
            for each in report.verdicts
            if each.kind is kind
        ]
        output.text(kind.capitalize())
        output.table(("attempt", "tier", "result", "layer", "evidence"), rows)
        output.text("")
    output.text(report.summary())
