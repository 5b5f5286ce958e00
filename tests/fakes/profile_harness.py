"""A folder of browser profiles, opened and opened again; and, run as a program, one that dies on the way."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palyra.browser.domain.profile import BrowserProfileRecord, PersistedSessionSnapshot, TabState
from palyra.browser.profiles.encryption import StateKey, StateKeys
from palyra.browser.profiles.store import ProfileStore

ANNA, BEN = "agent:anna", "user:ben"
OLD, NEW, OTHER = (StateKey(bytes([number]) * 32) for number in (1, 2, 3))
# The calls by which anything reaches the disk: a test ends the process at each of them.
STEPS = ("open", "fsync", "replace", "unlink", "rename")

# More than any change has: who needs more has found a loop.
MOST_STEPS = 200


def snapshot(text: str) -> PersistedSessionSnapshot:
    return PersistedSessionSnapshot(
        archive=text.encode(),
        tabs=(TabState(url="https://shop.test/"),),
        permissions={"https://shop.test": ("clipboard",)},
    )


class ProfileHarness:
    def __init__(self, folder: Path) -> None:
        self.folder = folder / "profiles"

    @contextmanager
    def store(self, *keys: StateKey) -> Iterator[ProfileStore]:
        with ProfileStore(self.folder, StateKeys(*(keys or (OLD,))), now_ms=lambda: 1_000) as store:
            yield store

    def made(self, *texts: str, principal: str = ANNA, name: str = "work") -> BrowserProfileRecord:
        """A profile that was saved with these, one after the other."""
        with self.store() as store:
            record = store.create(principal, name)
            for text in texts:
                record = store.save(principal, record.profile_id, snapshot(text), based_on=record.revision)
        return record

    def state(self, record: BrowserProfileRecord) -> Path:
        return self.folder / f"{record.profile_id}.{record.revision}.enc"

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name not in ("aside", "lock"))

    def aside(self) -> list[str]:
        return sorted(path.name.split("-", 1)[1] for path in (self.folder / "aside").iterdir())

    def content(self, principal: str, profile_id: str, *keys: StateKey) -> str | None:
        with self.store(*keys) as store:
            loaded = store.load(principal, profile_id)
        return None if loaded is None else loaded.archive.decode()


def die_at(step: int) -> None:
    """From now on the process is killed just before its ``step``-th call that reaches the disk."""
    calls = 0

    def dying(original: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*args, **kwargs)

        return call

    for name in STEPS:
        setattr(os, name, dying(getattr(os, name)))


def change(folder: Path, what: str, profile_id: str, step: int) -> None:
    keys = (NEW, OLD) if what == "rotate" else (OLD,)
    with ProfileHarness(folder).store(*keys) as store:
        revision = store.get(ANNA, profile_id).revision
        die_at(step)
        match what:
            case "save":
                store.save(ANNA, profile_id, snapshot("after"), based_on=revision)
            case "delete":
                store.delete(ANNA, profile_id)
            case "reset":
                store.reset(ANNA, profile_id)
            case "rotate":
                store.rotate()


def main(template: str, target: str, what: str, profile_id: str) -> None:
    """Makes the change in one copy of a folder after the other, each time killed one step later, until it gets
    through. This process has no threads, so that it can fork the ones that die."""
    for step in range(1, MOST_STEPS):
        folder = Path(target) / str(step)
        shutil.copytree(template, folder)
        child = os.fork()
        if not child:
            change(folder, what, profile_id, step)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return
        if ended != -signal.SIGKILL:
            sys.exit(f"step {step} ended with {ended}")
    sys.exit("the change has no end")


if __name__ == "__main__":
    main(*sys.argv[1:])
