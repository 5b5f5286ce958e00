"""Bubblewrap's options for Chromium."""

import pytest

from palyra.browser.domain.limits import FolderSizes
from palyra.browser.engine.launch_plan import Account, ChromiumPlan, HostLayout, chromium_plan, flags, writable_folders

LAYOUT = HostLayout(
    bwrap="/usr/bin/bwrap",
    chromium="/usr/lib/chromium/chromium-headless-shell",
    shell="/usr/bin/dash",
    setpriv="/usr/bin/setpriv",
    links=(("/lib", "usr/lib"),),
    directories=("/lib32",),
)
SIZES = FolderSizes(downloads=12_345)


def planned(*, dropped: bool = True) -> ChromiumPlan:
    account = Account(uid=60_700, gid=60_700, dropped=dropped)
    return chromium_plan(LAYOUT, account, SIZES, flags(), own_sandbox=True)


def test_every_line_has_a_reason() -> None:
    assert all(line.reason and line.words for line in planned().lines)


def test_it_has_namespaces_of_its_own_and_may_make_more() -> None:
    argv = planned().argv
    for option in ("--unshare-user", "--unshare-net", "--unshare-pid", "--unshare-ipc", "--die-with-parent"):
        assert option in argv
    # Chromium's own sandbox needs a user namespace inside.
    assert "--disable-userns" not in argv
    assert "--share-net" not in argv


def test_root_is_given_up_before_anything_is_built() -> None:
    argv = planned().argv
    # After the one that watches, and its script.
    assert (argv[0], argv[4]) == (LAYOUT.shell, LAYOUT.setpriv)
    assert argv.index("--reuid=60700") < argv.index(LAYOUT.bwrap)
    assert planned(dropped=False).argv[4] == LAYOUT.bwrap


def test_nothing_of_the_host_can_be_written() -> None:
    argv = planned().argv
    assert "--bind" not in argv and "--dev-bind" not in argv
    mounted = {argv[at + 1] for at, word in enumerate(argv) if word.startswith("--ro-bind")}
    assert not mounted & {"/", "/home", "/root", "/run", "/var", "/etc", "/usr", "/usr/bin"}


def test_every_writable_folder_has_a_size() -> None:
    argv = planned().argv
    for path, size, _ in writable_folders(SIZES):
        at = argv.index(path, argv.index("--proc"))
        assert argv[at - 5 : at] == ("--perms", "0700", "--size", str(size), "--tmpfs")
    assert argv.count("--tmpfs") == len(writable_folders(SIZES))


def test_the_hosts_layout_is_kept() -> None:
    argv = planned().argv
    assert argv[argv.index("usr/lib") - 1 : argv.index("usr/lib") + 2] == ("--symlink", "usr/lib", "/lib")
    assert argv[argv.index("/lib32") - 1] == "--ro-bind"


def test_chromium_is_the_binary_with_its_flags_as_words() -> None:
    argv = planned().argv
    at = argv.index(LAYOUT.chromium)
    assert argv[at + 1 :] == tuple(flag.word for flag in flags())
    # The script that waits gets them as arguments, never as text of its own.
    script = argv[argv.index("-c") + 1]
    assert "chromium" not in script and '"$@"' in script


@pytest.mark.parametrize("own_sandbox", [True, False])
def test_the_plan_says_whether_the_sandbox_is_off(own_sandbox: bool) -> None:
    account = Account(uid=1000, gid=1000, dropped=False)
    plan = chromium_plan(LAYOUT, account, SIZES, flags(own_sandbox=own_sandbox), own_sandbox=own_sandbox)
    assert ("--no-sandbox" in plan.argv) is not plan.own_sandbox
