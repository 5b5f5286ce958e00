"""A command makes what it uses; a daemon makes everything before it says that it is ready."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes.gateway_harness import open_harness
from palyra.daemon.pipeline_wiring import SCHEMA
from palyra.executors.builtin import BuiltinExecutor
from palyra.pipeline.execute import DeferredExecutors
from palyra.store.sqlite.connection import open_writer

# What a sandboxed command has no use for, by the modules that only it needs.
NOT_FOR_A_COMMAND = (
    "palyra.server.context",
    "palyra.browser.domain.download",
    "palyra.executors.browser.session_supervisor",
    "palyra.executors.network.service",
    "palyra.executors.fetch.executor",
    "palyra.daemon.mcp_wiring",
    "palyra.daemon.node_wiring",
    "palyra.daemon.vault_wiring",
    "palyra.executors.wasm.executor",
    "palyra.daemon.fleet_wiring",
    "palyra.egress.proxy.server",
    "palyra.skills.registry.registry",
    "palyra.vault.vault",
    "palyra.wasm.runtime",
    "palyra.fleet.domain.manager",
    "grpc",
    "importlib.metadata",
    "jinja2",
    "mcp",
    "prometheus_client",
    "starlette",
    "uvicorn",
    "wasmtime",
)
COMMAND = """
import sys
from palyra.cli.main import run
status = run(["--state-dir", sys.argv[1], "run", "--", "true"])
print(status, sorted(sys.modules))
"""


def test_a_sandboxed_command_loads_no_part_that_it_does_not_use(tmp_path: Path) -> None:
    words = [sys.executable, "-c", COMMAND, str(tmp_path / "state")]
    project = tmp_path / "project"
    project.mkdir()
    # The first command on a state directory makes the key for the arguments of calls.
    for _ in range(2):
        ended = subprocess.run(words, cwd=project, capture_output=True, text=True, check=True)
        assert ended.stdout.startswith("0 "), ended.stdout + ended.stderr
    assert [name for name in NOT_FOR_A_COMMAND if f"'{name}'" in ended.stdout] == []


async def test_a_daemon_has_made_everything_before_anybody_asks(tmp_path: Path) -> None:
    async with open_harness(tmp_path) as harness:
        gateway = harness.gateway
        made = ("egress", "fetch", "files", "mcp", "nodes", "service", "skills", "vault", "wasm", "workers")
        assert [name for name in made if not gateway.has(name)] == []
        assert gateway.executors.built == list(gateway.executors)
        assert all(gateway.executors[name] is gateway.executors[name] for name in gateway.executors)
        assert len(gateway.executors) == 9


def test_an_executor_is_made_once_when_it_is_first_asked_for() -> None:
    asked: list[str] = []

    def make() -> BuiltinExecutor:
        asked.append("made")
        return BuiltinExecutor()

    executors = DeferredExecutors({"builtin": make})
    assert list(executors) == ["builtin"] and executors.built == [] and asked == []
    assert executors["builtin"] is executors["builtin"]
    assert asked == ["made"]
    with pytest.raises(KeyError):
        executors["other"]


def test_every_table_is_made_by_whoever_opens_the_database_first() -> None:
    made = " ".join(SCHEMA)
    tables = ("api_tokens", "browser_profiles_heard", "console_sessions", "console_requests", "fleet_leases")
    tables += ("identity_devices", "mcp_pins", "node_state", "node_state_file", "skill_keys", "skill_versions")
    for table in (*tables, "vault_secrets", "events_of_rare_kinds"):
        assert f" IF NOT EXISTS {table} " in made


def test_a_database_of_before_gets_the_indexes_of_now(tmp_path: Path) -> None:
    path = tmp_path / "palyra.db"
    lists = (
        "CREATE INDEX events_rare ON events (kind, seq) WHERE kind NOT IN ('call.requested', 'call.decided')",
        "CREATE INDEX vault_changes ON events (seq) WHERE kind IN ('vault.created', 'vault.rotated', 'vault.other')",
    )
    open_writer(path, lists).close()
    for _ in range(2):
        connection = open_writer(path, SCHEMA)
        indexes = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'index'")}
        connection.close()
        assert {"events_of_rare_kinds", "changes_of_vault"} <= indexes
        assert not {"events_rare", "vault_changes"} & indexes
