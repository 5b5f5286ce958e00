"""What is judged of a browser's fences."""

import msgspec
import pytest

from palyra.browser.domain.limits import GUARD_PORT, FolderSizes
from palyra.browser.engine.isolation_layers import (
    BROWSER,
    NETWORK_SERVICE,
    RENDERER,
    Fence,
    FenceDown,
    FencesSeen,
    NetworkSeen,
    ProcessSeen,
    judge_fences,
    refuse_down,
)
from palyra.browser.engine.launch_plan import FLAGS, Account, HostLayout, chromium_plan, flags, writable_folders

UID = 60_700
LAYOUT = HostLayout(bwrap="/usr/bin/bwrap", chromium="/usr/lib/chromium/x", shell="/bin/sh", setpriv="/usr/bin/setpriv")
PLAN = chromium_plan(
    LAYOUT, Account(uid=UID, gid=UID, dropped=True), FolderSizes(), flags(own_sandbox=True), own_sandbox=True
)
NETWORK = NetworkSeen(is_own=True, interfaces=("lo",), routes=(), listening=(("127.0.0.1", GUARD_PORT),))
WORDS = ("chromium", *(flag.word for flag in FLAGS))


def process(kind: str, **changes: object) -> ProcessSeen:
    good = ProcessSeen(pid=2, kind=kind, uid=UID, seccomp=0, capabilities=0)
    return msgspec.structs.replace(good, **changes)


GOOD = FencesSeen(
    processes=(process(BROWSER, words=WORDS), process(RENDERER, seccomp=2), process(NETWORK_SERVICE)),
    network=NETWORK,
    folders=tuple((path, size, True) for path, size, _ in writable_folders(FolderSizes())),
)


def with_processes(*processes: ProcessSeen) -> FencesSeen:
    return msgspec.structs.replace(GOOD, processes=processes)


def with_network(**changes: object) -> FencesSeen:
    return msgspec.structs.replace(GOOD, network=msgspec.structs.replace(NETWORK, **changes))


def test_all_up() -> None:
    receipt = judge_fences(PLAN, GOOD)
    assert receipt.held and receipt.down() == ()
    assert {line.fence for line in receipt.lines} == set(Fence)
    refuse_down(receipt)


BROKEN = {
    "no proxy": (Fence.FLAGS, with_processes(process(BROWSER, words=("chromium",)), *GOOD.processes[1:])),
    "two browsers": (Fence.FLAGS, with_processes(*GOOD.processes, process(BROWSER, words=WORDS))),
    "host network": (Fence.NAMESPACE, with_network(is_own=False)),
    "another interface": (Fence.NAMESPACE, with_network(interfaces=("lo", "eth0"))),
    "a route": (Fence.NAMESPACE, with_network(routes=("0 over lo",))),
    "no guard": (Fence.GUARD, with_network(listening=())),
    "a second listener": (Fence.GUARD, with_network(listening=(*NETWORK.listening, ("0.0.0.0", 9222)))),
    "root": (Fence.ACCOUNT, with_processes(*GOOD.processes, process("gpu-process", uid=0))),
    "capabilities": (Fence.ACCOUNT, with_processes(process(BROWSER, words=WORDS, capabilities=1), *GOOD.processes[1:])),
    "no limit": (
        Fence.FOLDERS,
        msgspec.structs.replace(GOOD, folders=tuple((path, 1 << 50, True) for path, _, _ in GOOD.folders)),
    ),
    "no folder": (Fence.FOLDERS, msgspec.structs.replace(GOOD, folders=())),
    "renderer without filter": (Fence.OWN_SANDBOX, with_processes(*GOOD.processes, process(RENDERER, seccomp=0))),
    "no renderer": (Fence.OWN_SANDBOX, with_processes(GOOD.processes[0], GOOD.processes[2])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_fence_that_is_down_is_named_and_refused(name: str) -> None:
    fence, seen = BROKEN[name]
    receipt = judge_fences(PLAN, seen)
    assert receipt.down() == (fence,)
    assert not receipt.line(fence).held
    with pytest.raises(FenceDown) as refused:
        refuse_down(receipt)
    assert refused.value.details["fences"] == [str(fence)]


def test_an_allowed_fallback_is_down_in_the_receipt_and_waives_nothing_else() -> None:
    plan = msgspec.structs.replace(PLAN, own_sandbox=False)
    words = (*WORDS, "--no-sandbox")
    seen = with_processes(process(BROWSER, words=words), process(RENDERER, seccomp=0), process(NETWORK_SERVICE))
    receipt = judge_fences(plan, seen)
    assert not receipt.held and receipt.waived == (Fence.OWN_SANDBOX,)
    assert "allow_no_sandbox" in receipt.line(Fence.OWN_SANDBOX).got
    refuse_down(receipt)
    away = msgspec.structs.replace(seen, network=msgspec.structs.replace(NETWORK, is_own=False))
    assert judge_fences(plan, away).down() == (Fence.NAMESPACE,)


def test_no_sandbox_without_leave_is_down() -> None:
    seen = with_processes(process(BROWSER, words=(*WORDS, "--no-sandbox")), *GOOD.processes[1:])
    assert judge_fences(PLAN, seen).down() == (Fence.OWN_SANDBOX,)


def test_nothing_is_judged_before_every_helper_is_there() -> None:
    assert GOOD.complete
    for number in range(3):
        assert not with_processes(*GOOD.processes[:number], *GOOD.processes[number + 1 :]).complete


def test_the_receipt_is_plain_values() -> None:
    shown = judge_fences(PLAN, GOOD).as_dict()
    assert shown["lines"][0] == {
        "fence": "flags",
        "asked": "everything through the guard",
        "got": "all in force",
        "held": True,
    }
