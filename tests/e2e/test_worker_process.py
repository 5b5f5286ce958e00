"""palyra-workerd as a process beside a real daemon: joins, runs calls, is killed, stopped, and leaves."""

import json
import subprocess
import threading
from pathlib import Path

import pytest

from fakes.daemon import Answer, Place
from fakes.eventually import eventually_sync
from fakes.worker_process import DAEMON_SETTINGS, join, worker_process, worker_state, workerd

SHELLS = "[sandbox]\nallow_interpreters = true\n"


class LaterCall:
    """A call that another thread waits for."""

    def __init__(self, daemon: Place, *words: str) -> None:
        self.answer: Answer | None = None
        self._thread = threading.Thread(target=self._make, args=(daemon, words), daemon=True)
        self._thread.start()

    def _make(self, daemon: Place, words: tuple[str, ...]) -> None:
        self.answer = daemon.palyra("call", *words, "--tier", "worker", "--json")

    def result(self) -> Answer:
        self._thread.join(90)
        assert self.answer is not None
        return self.answer


@pytest.fixture
def home(tmp_path: Path) -> Place:
    return Place(tmp_path / "daemon", DAEMON_SETTINGS + SHELLS)


@pytest.fixture
def machine(tmp_path: Path) -> Place:
    return Place(tmp_path / "machine", SHELLS)


def scratches(machine: Place) -> list[str]:
    folder = machine.state / "worker" / "scratch"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_worker_joins_runs_calls_on_real_files_and_leaves(home: Place, machine: Place) -> None:
    with home.daemon():
        worker_id = join(home, machine)
        assert workerd(machine, "join", "--code", "12345678", "--server", "127.0.0.1:1").status != 0, "it is in a fleet"
        workspace = home.state / "workspace"
        (workspace / "data").mkdir()
        (workspace / "data" / "in.txt").write_text("from the daemon")
        with worker_process(machine, "--slots", "2") as worker:
            worker.says("connected and attested")
            script = "cat data/in.txt > data/out.txt; echo done; ls /proc/1 > /dev/null; pwd"
            arguments = json.dumps({"command": "sh", "args": ["-c", script]})
            ran = home.palyra("call", "process.run", "--tier", "worker", "--input", arguments, "--json")
            assert ran.status == 0, ran.stdout
            assert ran.data["result"]["stdout"].startswith("done\n") and ran.data["result"]["tier"] == "c"
            assert (workspace / "data" / "out.txt").read_text() == "from the daemon", "what it wrote came back"
            read = home.palyra("call", "fs.read", "--tier", "worker", "--input", '{"path":"data/in.txt"}', "--json")
            assert read.status == 0 and "from the daemon" in read.stdout, read.stdout
            # Into a folder that is there and has nothing in it yet.
            (workspace / "made").mkdir()
            given = '{"path":"made/new.txt","content":"by a worker"}'
            wrote = home.palyra("call", "fs.write", "--tier", "worker", "--input", given, "--json")
            assert wrote.status == 0 and (workspace / "made" / "new.txt").read_text() == "by a worker", wrote.stdout
            assert scratches(machine) == []
            status = workerd(machine, "status", "--json").data
            assert (status["state"], status["worker_id"], status["open_leases"]) == ("online", worker_id, [])
        assert worker.process.returncode == 0, worker.said
        left = workerd(machine, "leave", "--json")
        assert left.status == 0 and left.data["told_daemon"], left.stdout
        assert not workerd(machine, "status", "--json").data["joined"]
        with worker_process(machine) as again:
            assert again.wait() != 0
        assert "nodes.not_paired" in again.said


def test_a_killed_worker_is_in_quarantine_afterwards_and_leaves_nothing_on_its_disk(
    home: Place, machine: Place
) -> None:
    with home.daemon():
        join(home, machine, method="qr")
        with worker_process(machine) as worker:
            worker.says("connected and attested")
            call = LaterCall(home, "process.run", "--input", '{"command":"sleep","args":["60"]}', "--timeout", "50")
            eventually_sync(lambda: scratches(machine), seconds=60)
            worker.kill()
            assert len(scratches(machine)) == 1, "it had no time to clean up"
        lost = call.result()
        assert lost.status != 0 and lost.error["code"].startswith("lease."), lost.stdout
        with worker_process(machine) as again:
            again.says("was interrupted")
            eventually_sync(lambda: not scratches(machine), seconds=60)
            again.says("no connection")
            refused = home.palyra("call", "echo", "--tier", "worker", "--input", '{"text":"x"}', "--json")
            assert refused.status != 0 and "worker" in refused.error["code"], refused.stdout


@pytest.mark.promise("P-worker-quarantine")
def test_a_worker_that_cannot_clean_up_says_so_and_gets_no_more_work(home: Place, machine: Place) -> None:
    with home.daemon():
        worker_id = join(home, machine)
        with worker_process(machine) as worker:
            worker.says("connected and attested")
            call = LaterCall(home, "sleep", "--input", '{"seconds":3}')
            eventually_sync(lambda: scratches(machine), seconds=60)
            kept = machine.state / "worker" / "scratch" / scratches(machine)[0] / "workspace"
            # Something holds on to the call's place, and the worker has no way to remove it.
            subprocess.run(["mount", "-t", "tmpfs", "none", str(kept)], check=True)
            try:
                (kept / "left-behind").write_text("of the call")
                ended = call.result()
                # What the call did, it did; the machine is not clean, and that is what counts for the next one.
                assert ended.status == 0 and ended.data["result"] == {"seconds": 3}, ended.stdout
                eventually_sync(lambda: worker_state(home, worker_id)["state"] == "quarantined", seconds=60)
                assert worker_state(home, worker_id)["reason"].startswith("worker_cleanup.incomplete")
                refused = home.palyra("call", "echo", "--tier", "worker", "--input", '{"text":"x"}', "--json")
                assert refused.error["code"] == "fleet.no_worker", refused.stdout
            finally:
                subprocess.run(["umount", str(kept)], check=True)


def test_a_stopped_worker_ends_what_runs_and_tells_of_it(home: Place, machine: Place) -> None:
    with home.daemon():
        join(home, machine)
        with worker_process(machine) as worker:
            worker.says("connected and attested")
            call = LaterCall(home, "sleep", "--input", '{"seconds":2}')
            eventually_sync(lambda: scratches(machine), seconds=60)
            assert worker.stop() == 0, worker.said
        ended = call.result()
        assert ended.status == 0 and ended.data["result"] == {"seconds": 2}, ended.stdout
