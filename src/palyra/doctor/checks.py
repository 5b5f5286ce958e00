"""The checks of a machine, each tried for real: for `palyra doctor` and for the console."""

import asyncio
import http.client
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from palyra.doctor.report import Finding, Probe, missing, ok, warn
from palyra.errors import PalyraError
from palyra.limits import MIB

if TYPE_CHECKING:
    from collections.abc import Callable

    from palyra.browser.engine.isolation_layers import IsolationReceipt
    from palyra.browser.settings import BrowserSettings
    from palyra.pipeline.domain.workspaces import Workspaces
    from palyra.policy.request import EntityDirectory

DIGEST_CHARS_SHOWN: Final = 16
# Principals whose stored results are shown by name.
SHOWN_HOLDERS: Final = 5
# (module (func (export "run") (result i32) (i32.const 42)))
_SMALLEST_GUEST: Final = bytes.fromhex("0061736d010000000105016000017f030201000707010372756e00000a06010400412a0b")


def machine_probes(
    state: Path, policy_dir: Path, directory: "EntityDirectory", browser: "BrowserSettings", *, named: bool
) -> tuple[Probe, ...]:
    """List the questions. Only what every call needs is required; tiers report their own needs when they start.

    ``named`` says that the settings name the folder of policies.
    """
    from palyra.doctor import host, kernel
    from palyra.doctor.sandbox_layers import OTHER_NAMESPACES, build_layers
    from palyra.sandbox.domain.profile import Layer

    def policies() -> Finding:
        return policy_bundle(policy_dir, directory, named=named, state=state)

    rows = (
        ("python", "runs Palyra", True, host.python),
        ("state directory", "keeps keys, tokens and the journal private", True, lambda: host.state_directory(state)),
        ("durable writes", "make a record outlive a power cut", True, lambda: host.durable_writes(state)),
        ("sqlite", "holds the journal", True, lambda: host.sqlite(state)),
        ("stored data", "shows what the database and kept results take", False, lambda: stored_data(state)),
        ("clock", "dates records and ends approvals", True, lambda: host.clock(state)),
        ("policy bundle", "decides every call", True, policies),
        ("kept arguments", "show what ran, whole", False, lambda: kept_arguments(state)),
        ("openat2", "keeps the file tools in their workspace", True, kernel.openat2),
        ("landlock", "limits files and TCP without privileges", False, kernel.landlock),
        ("seccomp", "limits system calls", False, kernel.seccomp),
        ("user namespaces", "isolate processes without root", False, kernel.user_namespaces),
        ("bubblewrap", "builds Tier C sandboxes", False, host.bubblewrap),
        ("other namespaces", "hide the host's processes and network", False, lambda: build_layers(*OTHER_NAMESPACES)),
        ("nested namespaces", "can be switched off", False, lambda: build_layers(Layer.NESTED_USERNS_OFF)),
        ("read-only host", "while a sandbox is built", False, lambda: build_layers(Layer.HOST_READ_ONLY)),
        ("cgroups", "limit whole process trees", False, kernel.cgroups),
        ("webassembly", "runs skills in confined workers", False, webassembly),
        ("browser", "runs behind its fences", False, lambda: browser_fences(browser)),
    )
    return tuple(Probe(name=name, purpose=purpose, required=req, look=look) for name, purpose, req, look in rows)


def kept_arguments(state: Path) -> Finding:
    """Measure the sealed arguments of calls beside the journal, and find out whether new ones are kept."""
    from palyra.clock import rfc3339
    from palyra.journal.search import EventQuery, search_events
    from palyra.pipeline.domain.receipt_text import format_size
    from palyra.pipeline.store.argument_tables import list_keys, measure_arguments
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader

    if not (state / DATABASE_NAME).exists():
        return ok("no call was made yet")
    try:
        with SqliteReader(state / DATABASE_NAME) as reader:
            if not reader.read("SELECT 1 FROM sqlite_schema WHERE name = 'argument_keys'"):
                return ok("no call was made with this version yet")
            keys, kept = list_keys(reader), measure_arguments(reader)
            refused = search_events(reader, EventQuery(kind="journal.arguments_not_kept"), limit=1, look_at=1).events
    except PalyraError as error:
        return warn(error.message, error.hint)
    if refused and (not keys or refused[0].time_ms > keys[0].created_ms):
        why = refused[0].payload_value()
        return warn(f"new ones are not kept: {why.get('message', '')}", str(why.get("hint", "")))
    if kept.oldest_ms is None:
        return ok("none are kept yet")
    size = f"{format_size(kept.bytes)} of {kept.calls} call{'' if kept.calls == 1 else 's'}"
    return ok(f"{size}, the oldest of {rfc3339(kept.oldest_ms)[:10]}")


def stored_data(state: Path) -> Finding:
    """Read the size of the database, and the principals whose results take the most."""
    from palyra.pipeline.store.result_tables import read_stored_data
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader

    path = state / DATABASE_NAME
    if not path.exists():
        return ok("no database yet")
    try:
        with SqliteReader(path) as reader:
            found = read_stored_data(reader)
    except PalyraError as error:
        return missing(error.message, error.hint)
    holders = ", ".join(f"{each.principal} {_in_mib(each.bytes)}" for each in found.holdings[:SHOWN_HOLDERS])
    return ok(
        f"{_in_mib(found.file_bytes)}, {_in_mib(found.free_bytes)} of it free for new data;"
        f" {found.results:,} results kept, {_in_mib(found.result_bytes)}" + (f": {holders}" if holders else "")
    )


def _in_mib(size: int) -> str:
    return f"{size / MIB:,.1f} MiB"


def webassembly() -> Finding:
    """Compile and run the smallest guest, in a worker process as skills do."""
    from palyra.secret import Secret
    from palyra.wasm.domain.limits import PoolSettings
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


def browser_fences(browser: "BrowserSettings") -> Finding:
    """Start a browser as sessions have it, and read every isolation layer back from the running processes."""
    if not browser.enabled:
        return ok("switched off by browser.enabled")

    async def tried(folder: str) -> "tuple[str, IsolationReceipt]":
        from palyra.browser.engine.chromium import ChromiumLauncher, ChromiumSettings, GuardListeners
        from palyra.browser.engine.process_tree import ProcessNotes

        listeners = GuardListeners()
        try:
            engine = ChromiumSettings(binary=browser.engine or None, allow_no_sandbox=browser.allow_no_sandbox)
            process = await ChromiumLauncher(listeners, ProcessNotes(Path(folder)), engine).start()
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


def policy_bundle(folder: Path, directory: "EntityDirectory", *, named: bool, state: Path) -> Finding:
    """Load the bundle that a daemon started now would load."""
    from palyra.policy.cedar import CedarEngine
    from palyra.policy.live_policy import load_installed

    try:
        digest = CedarEngine(load_installed(folder, directory, state, named=named)).bundle_digest
    except PalyraError as error:
        return missing(error.message, error.hint)
    return ok(f"valid, with the files of {folder}, digest {digest[:DIGEST_CHARS_SHOWN]}")


def workspaces(check: "Callable[[], Workspaces]") -> Probe:
    """Show who works where. ``check`` refuses folders that a daemon started now would refuse."""

    def look() -> Finding:
        try:
            return ok(check().describe())
        except PalyraError as error:
            return missing(error.message, error.hint)

    return Probe(name="workspaces", purpose="keep the files of principals apart", required=True, look=look)


TIMEOUT_SECONDS: Final = 2.0


def daemon(host: str, port: int) -> Finding:
    """Ask a daemon whether it is healthy. One that is not running is no fault of the machine: at worst a warning."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        connection.request("GET", "/healthz", headers={"Connection": "close"})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return warn(f"no answer from {where}: {error or type(error).__name__}", "start it with `palyra up`")
    finally:
        connection.close()
    if status != http.client.OK:
        return warn(f"{where}/healthz answers {status}", "look at the daemon's log")
    return ok(f"{where} is healthy")
