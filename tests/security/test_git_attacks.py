"""What agents write into a workspace so that the person's next git command, outside, runs their code.

Each attack is done with the real git, first without Palyra: it has to work there, or it would show nothing here.
"""

import asyncio
import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.console_user import console_user
from fakes.eventually import eventually
from fakes.gateway_harness import open_harness
from fakes.git_payloads import PAYLOADS, Payload, git, make_repository, ran_outside

pytestmark = pytest.mark.promise("P-files-protected")

each_payload = pytest.mark.parametrize("payload", PAYLOADS, ids=[each.name for each in PAYLOADS])


@each_payload
def test_the_attack_works_where_nobody_stops_it(tmp_path: Path, payload: Payload) -> None:
    root = tmp_path / "workspace"
    payload.prepare(root)
    assert not ran_outside(root / payload.at, tmp_path)
    payload.write(root, tmp_path)
    assert ran_outside(root / payload.at, tmp_path)


@each_payload
async def test_no_file_that_fs_write_makes_runs_with_the_next_git_command(tmp_path: Path, payload: Payload) -> None:
    root = tmp_path / "workspace"
    payload.prepare(root)
    settings = {"workspace": {"root": str(root)}, "tools": {"preapproved": ["fs.*"]}}
    refused = []
    async with open_harness(tmp_path, settings) as harness:
        for path, text in payload.texts(tmp_path).items():
            more = {"executable": True, "create_parents": True}
            mode = "overwrite" if (root / path).exists() else "create"
            record = await harness.call("fs.write", {"path": path, "content": text, "mode": mode, **more})
            refused += [path] if record.state != "succeeded" else []
            if record.state != "succeeded":
                assert record.error is not None
                assert record.error["code"] == "workspace.protected_name"
                assert "open_groups" in record.error["hint"]
    assert refused
    assert not ran_outside(root / payload.at, tmp_path)


PLANT = """
import json, os, sys
for path, text in json.load(sys.stdin).items():
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
    except OSError as error:
        print(path, error)
print("planted", flush=True)
"""


def sandbox_settings(root: Path, **more: Any) -> dict[str, Any]:
    return {
        "workspace": {"root": str(root)},
        "sandbox": {"allow_interpreters": True, **more},
        "tools": {"preapproved": ["fs.*", "process.*"]},
    }


@each_payload
async def test_nothing_that_a_program_plants_runs_with_the_next_git_command(tmp_path: Path, payload: Payload) -> None:
    root = tmp_path / "workspace"
    payload.prepare(root)
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        record = await harness.call("process.run", python(PLANT, json.dumps(payload.texts(tmp_path))))
        assert record.state == "succeeded", record.error
        line = line_of(record.receipt)
    assert not ran_outside(root / payload.at, tmp_path)
    if "Read-only" not in record.result["stdout"]:
        assert not line["held"], line["got"]
    # What the person had still works.
    assert git(root, "status").returncode == (0 if (root / ".git").exists() else 128)


def line_of(receipt: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in receipt if each["layer"] == "protected_names")


def python(script: str, stdin: str = "", *args: str) -> dict[str, Any]:
    return {"command": "python3", "args": ["-I", "-c", script, *args], **({"stdin": stdin} if stdin else {})}


async def test_what_a_background_program_plants_in_a_repository_is_undone_while_it_runs(tmp_path: Path) -> None:
    """It finds the configuration read-only, so that the person can change it meanwhile; new files are undone."""
    root = tmp_path / "workspace"
    make_repository(root)
    texts = {}
    for name in ("config", "commondir"):
        texts |= next(each for each in PAYLOADS if each.name == name).texts(tmp_path)
    script = PLANT + "import time; time.sleep(60)"
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        started = await harness.call("process.start", python(script, json.dumps(texts)))
        assert started.state == "succeeded", started.error
        handle, run = started.result["handle"], started.run_id
        await eventually(lambda: list((tmp_path / "state/sandbox").glob("aside-*/0000")))
        assert not ran_outside(root, tmp_path)
        assert git(root, "config", "alias.mine", "!true").returncode == 0
        stopped = await harness.call("process.stop", {"handle": handle}, run_id=run)
        assert stopped.state == "succeeded", stopped.error
        assert stopped.result["killed_by"] == "process.stop"
        assert ".git/config [Errno 30] Read-only file system" in stopped.result["stdout"]
        (event,) = [payload for kind, payload in harness.events() if kind == "call.planted"]
    assert event["tool"] == "process.start"
    assert [each["name"] for each in event["names"] if each["moved_to"]] == [".git/commondir", "e/config"]
    assert git(root, "config", "alias.mine").stdout == "!true\n"
    assert not ran_outside(root, tmp_path)


async def test_a_setting_is_undone_while_the_program_that_made_it_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    make_repository(root)
    before = (root / ".git/config").read_text()
    payload = next(each for each in PAYLOADS if each.name == "config")
    script = PLANT + "import time\nwhile not os.path.exists('go'): time.sleep(0.02)"
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        call = asyncio.ensure_future(harness.call("process.run", python(script, json.dumps(payload.texts(tmp_path)))))
        await eventually(lambda: list((tmp_path / "state/sandbox").glob("aside-*/0000")))
        await eventually(lambda: (root / ".git/config").exists() and (root / ".git/config").read_text() == before)
        assert not ran_outside(root, tmp_path)
        (root / "go").touch()
        record = await call
        assert record.state == "succeeded", record.error
        assert record.result["exit_code"] == 0
        assert "core.fsmonitor" in record.result["protected"]["changes"][0]


PLANT_AGAIN = r"""
import time
while True:
    with open(".git/config", "w") as file:
        file.write("[core]\n\tfsmonitor = /bin/true\n")
    time.sleep(0.01)
"""


async def test_a_program_that_plants_again_and_again_is_ended(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    make_repository(root)
    before = (root / ".git/config").read_text()
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        record = await harness.call("process.run", python(PLANT_AGAIN))
        assert record.state == "succeeded", record.error
        assert record.result["killed_by"] == "protected_names"
    assert (root / ".git/config").read_text() == before


PLANT_MANY = r"""
import os
for number in range(300):
    os.makedirs(f"deep/{number}/.vscode")
    open(f"deep/{number}/.vscode/tasks.json", "w").write("run")
for name in (".envrc", "CLAUDE.md", "a\nb.code-workspace", ".mise.toml"):
    open(name, "w").write("planted")
os.symlink("/etc", ".cursor")
os.symlink("deep", ".claude")
os.mkfifo(".exrc")
os.makedirs("node_modules/x/.vscode")
os.makedirs(".venv/bin")
open(".venv/bin/activate", "w").close()
"""


async def test_planted_names_are_moved_aside_told_and_recorded(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        record = await harness.call("process.run", python(PLANT_MANY))
        assert record.state == "succeeded", record.error
        line = line_of(record.receipt)
        (event,) = [payload for kind, payload in harness.events(call=record.call_id) if kind == "call.planted"]
        person = await console_user(harness)
        overview, its_page = await person.page("/"), await person.page(f"/calls/{record.call_id}")
        again = await harness.call("process.run", python("print(1)"))
        assert line_of(again.receipt)["held"]
    assert "call.planted" in overview
    assert "process.run planted" in overview
    assert "307 changed during the call" in its_page
    assert not line["held"]
    assert event["count"] == event["moved"] == 307
    assert 'open_groups = ["editors"]' in record.result["protected"]["hint"]
    assert sorted(each.name for each in root.iterdir()) == [".venv", "deep", "node_modules"]
    assert (root / "node_modules/x/.vscode").is_dir()
    assert not list(root.glob("deep/*/.vscode"))
    # Nothing is lost: the list says what each one was.
    listed = json.loads((Path(event["folder"]) / "moved.json").read_text())
    assert listed["workspace"] == str(root)
    place = {each["name"]: Path(event["folder"]) / each["moved_to"] for each in listed["moved"]}
    assert place["CLAUDE.md"].read_text() == "planted"
    assert (place["deep/7/.vscode"] / "tasks.json").read_text() == "run"
    assert os.readlink(place[".cursor"]) == "/etc"


async def test_the_operator_chooses_to_keep_or_to_open_a_group(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    write = python("open('CLAUDE.md', 'w').write('mine'); open('.npmrc', 'w').write('mine')")
    settings = sandbox_settings(root)
    settings["workspace"]["open_groups"] = ["agents"]
    async with open_harness(tmp_path, settings) as harness:
        record = await harness.call("process.run", write)
        assert record.state == "succeeded", record.error
        assert (root / "CLAUDE.md").exists()
        assert not (root / ".npmrc").exists()
        wrote = await harness.call("fs.write", {"path": "AGENTS.md", "content": "x", "mode": "create"})
        assert wrote.state == "succeeded", wrote.error
    async with open_harness(tmp_path, sandbox_settings(root, appearing_protected="keep")) as harness:
        record = await harness.call("process.run", python("open('.npmrc', 'w').write('mine')"))
        assert (root / ".npmrc").exists()
        assert ".npmrc appeared" in record.result["protected"]["changes"][0]


async def test_a_place_on_another_file_system_or_a_full_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    other = Path("/dev/shm")
    assert other.stat().st_dev != root.stat().st_dev
    write = python("open('CLAUDE.md', 'w').write('planted')")
    made: list[str] = []
    make = tempfile.mkdtemp

    def elsewhere(**_: object) -> str:
        made.append(make(dir=other))
        return made[-1]

    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        monkeypatch.setattr("palyra.sandbox.runner.tempfile.mkdtemp", elsewhere)
        record = await harness.call("process.run", write)
        assert record.state == "succeeded", record.error
        (folder,) = (root / ".palyra-aside").iterdir()
        assert (folder / "0000").read_text() == "planted"
        spoil = "import os\ntry: os.rename('.palyra-aside', 'x')\nexcept OSError as error: print(error.strerror)"
        record = await harness.call("process.run", python(spoil.replace("\\n", "\n")))
        assert record.result["stdout"].strip() in ("Device or resource busy", "Read-only file system")
        assert not Path(made[0]).exists()
        monkeypatch.setattr("palyra.sandbox.runner.tempfile.mkdtemp", full)
        record = await harness.call("process.run", write)
        assert record.error is not None
        assert record.error["code"] == "sandbox.protected_appeared"
        (event,) = [payload for kind, payload in harness.events(call=record.call_id) if kind == "call.planted"]
    assert "No space left" in event["names"][0]["problem"]
    assert (root / "CLAUDE.md").read_text() == "planted"


async def test_a_read_only_name_that_is_in_the_way_comes_with_the_setting_that_opens_it(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    make_repository(root)
    (root / ".github/workflows").mkdir(parents=True)
    (root / ".github/workflows/ci.yml").write_text("on: push")
    for words in (("add", "."), ("commit", "-q", "-m", "ci"), ("checkout", "-q", "-b", "old", "HEAD~1")):
        assert git(root, *words).returncode == 0
    assert git(root, "checkout", "-q", "main").returncode == 0
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        record = await harness.call("process.run", {"command": "git", "args": ["rm", "-r", ".github"]})
        assert record.result["exit_code"] != 0
        assert ".github/workflows is read-only for programs" in record.result["protected"]["changes"]
        assert 'open_groups = ["ci"]' in record.result["protected"]["hint"]


async def test_a_directory_that_git_takes_for_a_repository_is_told(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        record = await harness.call("process.run", {"command": "git", "args": ["init", "-q", "--bare", "docs"]})
        assert record.state == "succeeded", record.error
        assert line_of(record.receipt)["held"]
        assert "docs appeared (git takes it for a repository)" in record.result["protected"]["changes"]
        assert "call.planted" in harness.kinds(call=record.call_id)
    assert (root / "docs/config").exists()


async def test_what_a_person_does_in_the_workspace_meanwhile_stays(tmp_path: Path) -> None:
    """An editor replaces a file that programs find read-only: that was not the program."""
    root = tmp_path / "workspace"
    root.mkdir()
    (root / ".env").write_text("old")
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        waiting = python("import sys, time; print(1, flush=True); time.sleep(60)")
        started = await harness.call("process.start", waiting)
        (root / ".env.new").write_text("new")
        (root / ".env.new").rename(root / ".env")
        await harness.call("process.stop", {"handle": started.result["handle"]}, run_id=started.run_id)
        assert "call.planted" not in harness.kinds()
    assert (root / ".env").read_text() == "new"


async def test_what_was_planted_when_the_daemon_died_is_reported_by_the_next_one(tmp_path: Path) -> None:
    root, scratch = tmp_path / "workspace", tmp_path / "state/sandbox"
    root.mkdir()
    script = f"""
import os, sys
from palyra.sandbox.domain.profile import SandboxProfile
from palyra.sandbox.layers.protected_mounts import gather_workspace
from palyra.sandbox.verify.protected_watch import ProtectedWatch
from palyra.workspace.protected_table import PROTECTED_NAMES
profile = SandboxProfile(workspace_root={str(root)!r}, protected_names=PROTECTED_NAMES)
watch = ProtectedWatch(profile, gather_workspace(profile)[1], {str(scratch)!r})
watch.write_note()
open({str(root / "CLAUDE.md")!r}, "w").write("planted")
os.kill(os.getpid(), 9)
"""
    async with open_harness(tmp_path, sandbox_settings(root)) as harness:
        scratch.mkdir(exist_ok=True)
        done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=False, timeout=60)
        assert done.returncode == -9
        for _ in range(2):
            record = await harness.call("process.run", python("print(1)"))
            assert record.state == "succeeded", record.error
        (event,) = [payload for kind, payload in harness.events() if kind == "call.planted"]
    assert event["names"][0]["name"] == "CLAUDE.md"
    assert "died before it looked" in event["names"][0]["problem"]
    assert (root / "CLAUDE.md").read_text() == "planted"
    assert not list(scratch.glob("running-*"))
