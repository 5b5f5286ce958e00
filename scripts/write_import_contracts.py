"""Writes `.importlinter` from the one list below: which modules are adapters. Every other module of a concept is core.

Run it after adding a module; a test compares its output with the file.
"""

import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SOURCE = TOP / "src" / "palyra"
TARGET = TOP / ".importlinter"

# Named after a technology or a resource: they do the I/O and decide nothing.
ADAPTERS = {
    "backup": ("archive", "restore", "snapshot"),
    "browser": (
        "browser_client",
        "browser_files",
        "browser_session",
        "cdp_pipe",
        "chromium",
        "chromium_process",
        "download_folder",
        "element_finder",
        "element_input",
        "grpc_answer",
        "grpc_server",
        "grpc_service",
        "held_folder",
        "host_layout",
        "interception",
        "live_view",
        "mouse_actions",
        "navigation",
        "page_actor",
        "page_downloads",
        "page_frames",
        "page_outcome",
        "page_pictures",
        "page_reader",
        "page_script",
        "page_wait",
        "process_look",
        "process_notes",
        "process_pool",
        "process_tree",
        "profile_archive",
        "profile_cipher",
        "profile_desk",
        "profile_files",
        "profile_key_file",
        "profile_ledger",
        "profile_store",
        "session_actions",
        "session_closing",
        "session_cookies",
        "session_folders",
        "session_manager",
        "session_opening",
        "session_pages",
        "session_ports",
        "socket_place",
        "sqlite_profiles",
        "storage_transfer",
        "tab_actions",
        "tab_book",
        "tab_page",
        "tab_states",
        "targets",
        "text_input",
        "upload_folder",
        "wire_values",
    ),
    "client": ("asgi", "async_client", "blocking", "client", "local", "transport"),
    "config": ("load", "location", "state_dir", "toml_file"),
    "doctor": ("cgroup_membership", "daemon_http", "host", "kernel"),
    "egress": (
        "descriptor_limit",
        "dial",
        "dns_door",
        "door",
        "faces",
        "http_forward",
        "injected_exchange",
        "own_addresses",
        "proxy",
        "readiness",
        "relay",
        "resolver",
        "run_ca",
        "shared_budget",
        "socket_stream",
        "termination",
        "tls_stream",
        "tunnel",
        "upstream_handshake",
    ),
    "fetch": ("client", "executor", "tls"),
    "identity": (
        "authorities",
        "device_changes",
        "identity_manager",
        "known_devices",
        "server_certificates",
        "sqlite_identity",
        "sqlite_tokens",
        "x509",
    ),
    "journal": (
        "ballast",
        "follow",
        "gathering",
        "outcomes",
        "sealing",
        "sqlite",
        "sqlite_faults",
        "sqlite_reader",
        "sqlite_schema",
        "sqlite_search",
        "subscription",
        "telling",
        "transaction",
        "unit",
        "writer",
    ),
    "mcp": (
        "behind.server_session",
        "behind.sqlite_pins",
        "behind_door",
        "call_telling",
        "message_stream",
        "protocol_door",
        "server",
        "stdio_client",
        "stdio_relay",
    ),
    "nodes": (
        "bootstrap_app",
        "bootstrap_client",
        "bootstrap_protocol",
        "bootstrap_server",
        "device.device_key",
        "device.joining",
        "device.pairing_folder",
        "dispatcher",
        "durable_file",
        "grpc_gate",
        "grpc_server",
        "grpc_service",
        "grpc_stream",
        "host.capabilities",
        "host.desktop",
        "host.device_folder",
        "host.driver",
        "host.grpc_link",
        "host.system_health",
        "node_desk",
        "pairing_desk",
        "pairing_door",
        "presented_certificate",
        "qr",
        "spake2_exchange",
        "sqlite_state",
        "state_file",
    ),
    "sandbox": (
        "appearing",
        "attacks.attack_runner",
        "attacks.bait_scene",
        "attacks.probes.calls",
        "attacks.probes.files",
        "attacks.probes.kernel",
        "attacks.probes.probe_program",
        "attacks.probes.resources",
        "attacks.probes.start",
        "attacks.probes.world",
        "attacks.proc_traces",
        "bubblewrap",
        "built_ahead",
        "capture",
        "cgroup",
        "cgroup_files",
        "cgroup_group",
        "child",
        "descendants",
        "descent",
        "doorway",
        "exec_child",
        "host_hold",
        "keeper_main",
        "keeper_pool",
        "landlock",
        "launcher",
        "linux_calls",
        "namespace_socket_main",
        "namespace_sockets",
        "native_start",
        "native_watch",
        "probe",
        "process_executor",
        "call_preparation",
        "process_runner",
        "protected_mounts",
        "quick_look",
        "readback",
        "remove_tree",
        "resolve_executable",
        "rlimit",
        "running",
        "second_names",
        "survey",
        "waiting_sandbox",
        "warm_pool",
    ),
    "skills": (
        "candidates",
        "generator_command",
        "local_host",
        "project_files",
        "registry",
        "sqlite_publishers",
        "sqlite_skills",
        "store",
        "sweeping",
        "toolchain",
        "transitions",
    ),
    "policy": ("cedar", "cedar_check", "loader", "reload", "watcher"),
    "signing": ("ed25519", "p256"),
    "telemetry": ("browser_prometheus", "call_watch", "log_setup", "log_writer", "prometheus", "tracing"),
    "tools": (
        "approval_wait",
        "attended",
        "broker",
        "builtin",
        "call_entries",
        "ending",
        "execution",
        "intake",
        "sqlite_approvals",
        "sqlite_call_search",
        "sqlite_calls",
        "sqlite_runs",
        "waiting",
    ),
    "vault": (
        "aesgcm",
        "environment",
        "key_file",
        "keyring",
        "opened",
        "passphrase",
        "rotation",
        "sqlite_vault",
        "terminal",
        "vault",
    ),
    "wasm": (
        "answers",
        "cache",
        "cache_folder",
        "carried_out",
        "compile_process",
        "compiler",
        "component_functions",
        "component_guest",
        "confinement",
        "core_guest",
        "core_linker",
        "deadline",
        "engine",
        "guest_memory",
        "guest_store",
        "host_functions",
        "libwasmtime",
        "run_meter",
        "runtime",
        "wasi_components",
        "wasi_stub",
        "wit_types",
        "worker",
        "worker_channel",
        "worker_link",
        "worker_main",
        "worker_pool",
        "worker_source",
    ),
    "workers": (
        "agent.agent",
        "agent.grpc_link",
        "agent.lease_runner",
        "agent.measured_build",
        "agent.note_folder",
        "agent.residue",
        "agent.scratch",
        "agent.session",
        "agent.shown_output",
        "agent.wire_values",
        "egress.door_client",
        "egress.door_packets",
        "egress.door_server",
        "egress.grpc_leases",
        "egress.grpc_link",
        "egress.grpc_service",
        "egress.spool",
        "artifact_desk",
        "artifact_store",
        "batching",
        "fleet_desk",
        "grpc_service",
        "grpc_stream",
        "lease_calls",
        "sqlite_fleet",
        "worker_events",
    ),
    "workspace": (
        "fs_list",
        "fs_patch",
        "fs_read",
        "fs_search",
        "fs_write",
        "openat2",
        "regex_child",
        "regex_process",
        "replacement",
        "root",
        "tools",
        "walk",
    ),
}
# No concept's own, and any adapter's to use: system calls that the standard library lacks.
SYSTEM_CALLS = ("palyra.workspace.openat2",)
# Composition roots and doors: nothing below them may know them.
OUTER = ("palyra.cli", "palyra.daemons", "palyra.api", "palyra.console", "palyra.bench")
INPUT_OUTPUT = (
    *("asyncio", "socket", "ssl", "subprocess", "sqlite3", "select", "ctypes", "fcntl", "shutil", "tempfile"),
    *("cedarpy", "cryptography", "google", "grpc", "prometheus_client", "spake2", "starlette", "uvicorn", "uvloop"),
    *("anyio", "mcp", "mcp_types", "wasmtime", "watchfiles"),
)
# Generated from proto/: messages as they travel, for adapters only.
WIRE = "palyra.wire"


def modules() -> list[str]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] != "__init__":
            found.append(".".join(("palyra", *parts)))
    return found


def adapters() -> dict[str, list[str]]:
    return {concept: [f"palyra.{concept}.{name}" for name in names] for concept, names in ADAPTERS.items()}


def core() -> list[str]:
    outside = {name for names in adapters().values() for name in names}
    not_core = tuple(f"{folder}." for folder in (*OUTER, WIRE))
    return [name for name in modules() if name not in outside and not name.startswith(not_core)]


def contracts() -> str:
    every_adapter = [name for names in adapters().values() for name in names]
    sections = [
        "# Written by scripts/write_import_contracts.py.\n[importlinter]\nroot_package = palyra\n"
        "include_external_packages = True\n",
        _forbidden(
            "core",
            "Core does no I/O and knows no adapter",
            core(),
            [*INPUT_OUTPUT, *every_adapter, *OUTER, WIRE],
        ),
        _forbidden("inward", "Adapters know no door and no composition root", every_adapter, list(OUTER)),
        _forbidden("doors", "The API knows neither the daemons nor the command line", ["palyra.api"], list(OUTER[:2])),
        _forbidden("console", "The console knows neither of them either", ["palyra.console"], list(OUTER[:2])),
    ]
    for concept, own in adapters().items():
        others = [name for name in every_adapter if name not in own and name not in SYSTEM_CALLS]
        sections.append(
            _forbidden(f"adapters-{concept}", f"Adapters of {concept} meet others in a daemon", own, others)
        )
    return "\n".join(sections)


def _forbidden(key: str, name: str, source: list[str], forbidden: list[str]) -> str:
    lines = [f"[importlinter:contract:{key}]", f"name = {name}", "type = forbidden", "source_modules ="]
    lines += [f"    {module}" for module in source]
    lines += ["forbidden_modules ="]
    lines += [f"    {module}" for module in forbidden]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = contracts()
    if "--check" in sys.argv:
        sys.exit(0 if TARGET.exists() and TARGET.read_text() == text else "run scripts/write_import_contracts.py")
    TARGET.write_text(text)
