"""The process tools through a real daemon: approval, handles, cancelling, crashes, obligations."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fakes.daemon import Daemon, Place
from fakes.eventually import eventually_sync
from fakes.processes import marked, new_mark
from palyra.client.client import Client
from palyra.errors import PalyraError

FREE = '[tools]\npreapproved = ["process.*"]\n[sandbox]\nallow_interpreters = true\n'


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, FREE)


def refusal(act: Callable[[], object]) -> dict[str, Any]:
    with pytest.raises(PalyraError) as refused:
        act()
    return refused.value.as_dict()


def shell(script: str) -> dict[str, Any]:
    return {"command": "sh", "args": ["-c", script]}


def in_a_thread(work: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        # How the call ends is looked at elsewhere; here its connection may just break.
        try:
            work()
        except (PalyraError, OSError):
            return

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    return thread


def test_a_program_needs_approval_and_then_runs_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    given = json.dumps({"command": "echo", "args": ["hi there"]})
    with place.daemon():
        asked = place.palyra("call", "process.run", "--input", given, "--json")
        assert asked.status == 4 and asked.error["code"] == "call.needs_approval"
        assert place.palyra("approvals", "approve", asked.error["details"]["approval_id"], "--yes").status == 0
        other = json.dumps({"command": "echo", "args": ["hi", "there"]})
        assert place.palyra("call", "process.run", "--input", other, "--json").status == 4
        ran = place.palyra("call", "process.run", "--input", given, "--json")
        assert ran.status == 0 and ran.data["result"]["stdout"] == "hi there\n"
        assert ran.data["result"]["backend"] == "bubblewrap" and ran.data["receipt"]
        assert place.palyra("call", "process.run", "--input", given, "--json").status == 4


@pytest.mark.promise("P-own-only")
def test_handles_belong_to_their_run_and_principal(place: Place) -> None:
    with place.daemon() as daemon:
        tokens = [
            place.palyra("token", "create", "--principal", f"agent:{name}", "--json").data["token"] for name in "ab"
        ]
        with daemon.client(tokens[0]) as alice, daemon.client(tokens[1]) as bob:
            started = alice.call("process.start", shell("echo up; sleep 300"))
            handle, run = started.result["handle"], started.run_id
            other = alice.start_run().run_id
            missing = refusal(lambda: alice.call("process.logs", {"handle": "nonsense"}, run_id=run))
            assert missing["code"] == "process.unknown_handle"
            for tool in ("process.logs", "process.stop"):
                for act in (
                    lambda tool=tool: alice.call(tool, {"handle": handle}, run_id=other),
                    lambda tool=tool: bob.call(tool, {"handle": handle}),
                ):
                    assert refusal(act)["code"] == "process.unknown_handle"
                assert refusal(lambda tool=tool: bob.call(tool, {"handle": handle}, run_id=run))["code"] == (
                    "run.unknown"
                )
            eventually_sync(
                lambda: alice.call("process.logs", {"handle": handle}, run_id=run).result["content"] == "up\n"
            )
            stopped = alice.call("process.stop", {"handle": handle}, run_id=run)
            assert stopped.result["killed_by"] == "process.stop" and stopped.result["stdout"] == "up\n"


def test_cancelling_a_call_ends_its_whole_tree(place: Place) -> None:
    mark = new_mark()
    with place.daemon() as daemon, daemon.client() as client:
        script = f"setsid sleep 300 & (sleep 300 &) ; : {mark}; sleep 300"
        thread = in_a_thread(lambda: _call(daemon, "process.run", shell(script)))
        eventually_sync(lambda: marked(mark))
        events = place.palyra("journal", "tail", "--kind", "call.started", "--json").data["events"]
        client.cancel(events[-1]["call"])
        assert marked(mark) == {}
        thread.join(60)
        assert client.call_status(events[-1]["call"]).status == "cancelled"


@pytest.mark.promise("P-sandbox-ends")
@pytest.mark.parametrize("tier", ["b", "c"])
def test_a_killed_daemon_leaves_no_sandbox_behind(tmp_path: Path, tier: str) -> None:
    place = Place(tmp_path, f'{FREE}tier = "{tier}"\n')
    mark = new_mark()
    script = f"setsid sleep 300 & (sleep 300 &) ; : {mark}; sleep 300"
    with place.daemon() as daemon:
        with daemon.client() as client:
            client.call("process.start", shell(script))
        in_a_thread(lambda: _call(daemon, "process.run", shell(script)))
        eventually_sync(lambda: len(marked(mark)) >= 2)
        daemon.kill()
        eventually_sync(lambda: not marked(mark))


def test_a_graceful_stop_ends_background_processes(place: Place) -> None:
    mark = new_mark()
    with place.daemon() as daemon:
        with daemon.client() as client:
            for _ in range(3):
                client.call("process.start", shell(f"trap '' TERM; : {mark}; sleep 300"))
        eventually_sync(lambda: len(marked(mark)) >= 3)
        daemon.stop()
        assert marked(mark) == {}
    assert place.palyra("journal", "verify", "--json").status == 0


@pytest.mark.promise("P-obligations")
def test_what_policy_obliges_to_is_enforced(place: Place) -> None:
    (place.policies / "own.cedar").write_text(
        """
        @id("own.held")
        @obligation_tier("b")
        @obligation_timeout_ms("1500")
        @obligation_memory_bytes("134217728")
        @obligation_cpu_seconds("3")
        @obligation_read_only("true")
        @obligation_max_output_bytes("4096")
        permit (principal, action == Action::"tool.execute", resource == Tool::"process.run");
        """
    )
    with place.daemon() as daemon, daemon.client() as client:
        seen = client.call("process.run", shell("ulimit -t; touch new || echo refused"))
        assert seen.result["tier"] == "b" and seen.result["stdout"].split() == ["3", "refused"]
        lines = {line["layer"]: line for line in seen.receipt or []}
        assert "1500" in lines["deadline"]["asked"]
        assert "134217728" in lines.get("cgroup_memory", lines["rlimits"])["asked"] + lines["rlimits"]["asked"]
        eat = "import sys; b = bytearray(400 << 20); print(len(b))"
        greedy = client.call("process.run", {"command": "python3", "args": ["-c", eat]})
        assert greedy.result["exit_code"] != 0 and "419430400" not in greedy.result["stdout"]
        late = refusal(lambda: client.call("process.run", shell("sleep 60"), timeout_ms=60_000))
        assert late["code"] == "sandbox.timed_out"
        flood = refusal(lambda: client.call("process.run", shell("yes")))
        assert flood["code"] == "sandbox.quota_exceeded"
    assert not (place.state / "workspace" / "new").exists()


def test_a_partial_result_is_on_record(place: Place) -> None:
    with place.daemon() as daemon, daemon.client() as client:
        refused = refusal(lambda: client.call("process.run", shell("echo part; sleep 60"), timeout_ms=500))
        assert refused["code"] == "sandbox.timed_out"
        call = place.palyra("journal", "tail", "--kind", "call.started", "--json").data["events"][-1]["call"]
        status = client.call_status(call)
        assert status.result["stdout"] == "part\n" and status.receipt and status.attestation


def _call(daemon: Daemon, tool: str, arguments: dict[str, Any]) -> None:
    with daemon.client() as client:
        assert isinstance(client, Client)
        client.call(tool, arguments, timeout_ms=120_000)
