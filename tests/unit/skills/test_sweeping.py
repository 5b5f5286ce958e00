"""Archives that nobody needs go; one that somebody is about to need stays."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from fakes.skill_harness import ACTOR, SKILL, SkillHarness, archive, artifact
from palyra.skills.registry.archives import ArtifactFiles
from palyra.skills.registry.registry import SkillRegistry


async def in_use(registry: SkillRegistry) -> list[str]:
    return [one.version for one in await registry.active_modules(actor="palyrad")]


KILLED = """
import os, signal, sys
from pathlib import Path
from palyra.skills.registry.archives import ArtifactFiles

def killed(*_args, **_names):
    os.kill(os.getpid(), signal.SIGKILL)

if sys.argv[2] == "half written":
    os.replace = killed
ArtifactFiles(Path(sys.argv[1])).put(sys.stdin.buffer.read())
killed()
"""


def left_by_one_who_was_killed(harness: SkillHarness, when: str) -> None:
    command = [sys.executable, "-c", KILLED, str(harness.folder), when]
    died = subprocess.run(command, input=archive("9.0.0"), timeout=60, check=False)
    assert died.returncode == -signal.SIGKILL


@pytest.mark.parametrize("when", ["half written", "without a row"])
async def test_what_a_killed_process_left_is_swept_when_the_registry_is_opened(
    harness: SkillHarness, when: str
) -> None:
    registry = await harness.trusting()
    kept = {harness.file((await harness.approved(registry)).digest)}
    kept.add(harness.file((await registry.install(archive("1.1.0"), actor=ACTOR)).digest))
    await asyncio.to_thread(left_by_one_who_was_killed, harness, when)
    assert len(list(harness.folder.iterdir())) == 3
    assert await in_use(harness.registry()) == ["1.0.0"]
    assert set(harness.folder.iterdir()) == kept


async def test_what_another_process_is_writing_is_not_swept(harness: SkillHarness) -> None:
    registry, writing = harness.registry(), ArtifactFiles(harness.folder)
    async with writing.lock():
        digest = writing.put(archive())
        (harness.folder / ".0123456789abcdef.new").touch()
        await in_use(registry)
        assert len(list(harness.folder.iterdir())) == 2
    assert harness.file(digest).exists()
    await in_use(registry)
    assert not list(harness.folder.iterdir())


async def test_the_archive_of_a_version_that_failed_stays_for_who_looks_into_it(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    failed = await harness.approved(registry)
    harness.file(failed.digest).write_bytes(b"evil")
    for _ in range(2):
        assert await in_use(harness.registry()) == []
    assert harness.file(failed.digest).read_bytes() == b"evil"
    await registry.remove(SKILL, actor=ACTOR)
    assert not list(harness.folder.iterdir())


@pytest.mark.parametrize("how", ["removed", "refused"])
async def test_an_archive_that_is_installed_while_another_sweeps_it_stays(
    harness: SkillHarness, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has looked, and is about to delete."""
    installing, sweeping = await harness.trusting(), harness.registry()
    await harness.approved(installing)
    looked, done = threading.Event(), threading.Event()
    for name in ("digests_kept", "digests_known"):
        look = getattr(sweeping.index, name)

        def looking(look: Callable[[], set[str]] = look) -> set[str]:
            found = look()
            looked.set()
            done.wait(0.5)
            return found

        monkeypatch.setattr(sweeping.index, name, looking)
    digest = artifact().digest
    if how == "refused":
        await installing.remove(SKILL, actor=ACTOR)
        ArtifactFiles(harness.folder).put(archive())
    work = sweeping._sweeping.one(digest) if how == "refused" else sweeping.remove(SKILL, actor=ACTOR)
    sweep = asyncio.ensure_future(work)
    await asyncio.to_thread(looked.wait, 10)
    installed = await installing.install(archive(), actor=ACTOR)
    done.set()
    await sweep
    assert installed.digest == digest and harness.file(digest).exists()
    await installing.approve(SKILL, installed.version, digest, actor=ACTOR)
    assert await in_use(installing) == ["1.0.0"]
