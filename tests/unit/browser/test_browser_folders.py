"""Folders of a real sandbox's own, reached from outside."""

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.processes import own_descriptors
from palyra.browser.domain.limits import BROWSER_UID, FolderSizes
from palyra.browser.engine.browser_folders import BrowserFiles
from palyra.browser.engine.chromium import account_of, find_layout
from palyra.browser.engine.launch_plan import GO_FD, Account, ChromiumPlan, chromium_plan
from palyra.browser.engine.process_tree import ProcessTree, spawn

SIZES = FolderSizes(profile=1 << 20, downloads=1 << 16)


def planned() -> ChromiumPlan:
    return chromium_plan(find_layout(), account_of(BROWSER_UID), SIZES, (), own_sandbox=True)


@pytest.fixture
async def tree() -> AsyncIterator[ProcessTree]:
    """One that waits at the gate."""
    tree = spawn(planned().argv)
    await tree.wait_until_built()
    yield tree
    await tree.end()


@pytest.fixture
def account() -> Account:
    return account_of(BROWSER_UID)


async def test_files_are_put_there_as_the_browsers_own(tree: ProcessTree, account: Account) -> None:
    files = BrowserFiles(tree.first, account)
    own = (os.geteuid(), os.getegid())

    def fill() -> str:
        (files.profile / "Default").mkdir()
        (files.profile / "Default" / "Cookies").write_bytes(b"jar")
        return "done"

    assert await files.as_browser(fill) == "done"
    made = (files.profile / "Default" / "Cookies").stat()
    assert (made.st_uid, made.st_gid) == (account.uid, account.gid)
    assert (files.profile / "Default" / "Cookies").read_bytes() == b"jar"
    assert (os.geteuid(), os.getegid()) == own
    files.close()


async def test_the_thread_that_makes_them_has_no_power_over_the_hosts_files(
    tree: ProcessTree, account: Account, tmp_path: Path
) -> None:
    if not account.dropped:
        pytest.skip("an ordinary user has none anyway")
    secret = tmp_path / "secret"
    secret.write_text("of root")
    secret.chmod(0o600)
    files = BrowserFiles(tree.first, account)
    with pytest.raises(PermissionError):
        await files.as_browser(secret.read_text)
    files.close()


async def test_they_are_small_and_nobody_elses(tree: ProcessTree, account: Account) -> None:
    files = BrowserFiles(tree.first, account)

    def too_much() -> None:
        (files.downloads / "large").write_bytes(b"x" * (SIZES.downloads + 65_536))

    with pytest.raises(OSError, match="No space left"):
        await files.as_browser(too_much)
    assert stat.S_IMODE(files.downloads.stat().st_mode) == 0o700
    # Each is limited by itself: the profile still has room.
    await files.as_browser(lambda: (files.profile / "x").write_bytes(b"x" * 65_536))
    files.close()


async def test_they_outlive_the_processes_until_they_are_given_up(account: Account) -> None:
    before = own_descriptors()
    tree = spawn(planned().argv)
    files = BrowserFiles(await tree.wait_until_built(), account)
    await files.as_browser(lambda: (files.profile / "kept").write_text("until now"))
    await tree.end()
    assert (files.profile / "kept").read_text() == "until now"
    files.close()
    files.close()
    assert not files.profile.exists()
    assert own_descriptors() == before


async def test_paths_as_the_browser_calls_them(tree: ProcessTree, account: Account) -> None:
    files = BrowserFiles(tree.first, account)
    assert files.inside(files.uploads / "a" / "b.csv") == "/browser/uploads/a/b.csv"
    assert files.inside(files.downloads / "x") == "/browser/downloads/x"
    with pytest.raises(ValueError, match="none of the browser's folders"):
        files.inside(Path("/etc/passwd"))
    files.close()


async def test_a_process_that_is_gone_has_none(account: Account) -> None:
    before = own_descriptors()
    tree = spawn(planned().argv)
    first = await tree.wait_until_built()
    os.close(tree.take(GO_FD))
    assert await tree.wait_until_gone(30)
    with pytest.raises(OSError):
        BrowserFiles(first, account)
    await tree.end()
    assert own_descriptors() == before
