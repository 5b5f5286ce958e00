"""The page `add-a-worker`, followed command by command by somebody who has a daemon and a second machine."""

import re
import shlex
import subprocess
from pathlib import Path

from fakes.daemon import PALYRA, Place
from fakes.documented import DOCS, commands_under
from fakes.eventually import eventually_sync
from fakes.worker_process import DAEMON_SETTINGS, WORKERD, WorkerProcess, worker_state

PAGE = "how-to/add-a-worker.md"


class Reader:
    """Types what the page says, with the words filled in that differ each time; keeps what was printed."""

    def __init__(self, home: Place, machine: Place) -> None:
        self.home = home
        self.machine = machine
        self.words: dict[str, str] = {}

    def _filled(self, words: list[str]) -> list[str]:
        return [self.words.get(word, word) for word in words[1:]]

    def follow(self, heading: str) -> str:
        """Every command under a heading, one after the other; what they printed."""
        printed = ""
        for words in commands_under(PAGE, heading):
            place, program = (self.home, PALYRA) if words[0] == "palyra" else (self.machine, WORKERD)
            done = subprocess.run(
                [*program, *self._filled(words)],
                env=place.environment,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            assert done.returncode == 0, (shlex.join(words), done.stdout, done.stderr)
            printed += done.stdout + done.stderr
        return printed

    def begin(self, heading: str) -> WorkerProcess:
        """The one command under a heading that goes on by itself."""
        ((_, *words),) = commands_under(PAGE, heading)
        return WorkerProcess(self.machine, *self._filled(["", *words]))


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match[1]


def test_the_page_leads_from_a_code_to_work_and_to_the_end_of_it(tmp_path: Path) -> None:
    home, machine = Place(tmp_path / "home", DAEMON_SETTINGS), Place(tmp_path / "machine")
    reader = Reader(home, machine)
    with home.daemon():
        made = reader.follow("Make a code")
        reader.words |= {"CODE": found(r"(\d{3}-\d{4}-\d{4})", made), "SERVER": found(r"--server (\S+)", made)}
        joining = reader.begin("Join")
        joining.says("shows the code")
        reader.words["DIGITS"] = found(r"shows the code (\d{6})", joining.said)
        # Requests of devices stand among what waits for a person.
        listed = home.palyra("approvals", "list").stdout
        assert "builder" in listed and reader.words["DIGITS"] in listed, listed
        reader.words["REQUEST"] = found(r"\b(0[0-9A-Z]{25})\b", listed)
        reader.follow("Approve")
        assert joining.wait() == 0, joining.said
        running = reader.begin("Start it")
        try:
            running.says("connected and attested")
            worked = reader.follow("Run calls on it")
            assert "available" in worked and "hi" in worked and "Linux" in worked and "settled" in worked, worked
            (demand,) = re.findall(r"```cedar\n(.*?)```", (DOCS / PAGE).read_text(), re.DOTALL)
            (home.policies / "workers.cedar").write_text(demand)
            given = ("--input", '{"command": "uname", "args": ["-s"]}', "--json")
            eventually_sync(lambda: _ran_on_worker(home, *given), seconds=60)
            reader.follow("Look after it")
            running.says("connected and attested", times=2)
            (worker,) = home.palyra("worker", "list", "--json").data["workers"]
            eventually_sync(lambda: worker_state(home, worker["worker_id"])["state"] == "available", seconds=60)
            assert re.search(r"build_digest_sha256 +[0-9a-f]{64}", reader.follow("Say what it must be"))
            reader.follow("Take it out")
            assert worker_state(home, worker["worker_id"])["state"] == "removed"
            assert running.wait() != 0 and "does not know this worker" in running.said, running.said
        finally:
            running.stop()


def _ran_on_worker(home: Place, *given: str) -> bool:
    """Without anybody asking for it: once the policy is in force."""
    ran = home.palyra("call", "process.run", *given)
    assert ran.status == 0, ran.stdout
    return bool(ran.data["receipt"][0]["layer"] == "worker_lease")
