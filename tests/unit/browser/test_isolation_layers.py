"""What is judged of a browser's fences."""

import msgspec
import pytest

from palyra.browser.domain.limits import GUARD_PORT, FolderSizes
from palyra.browser.engine.isolation_layers import (
    BROWSER,
    NETWORK_SERVICE,
    RENDERER,
    IsolationDown,
    IsolationLayer,
    IsolationSeen,
    NetworkSeen,
    ProcessSeen,
    judge_isolation,
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


GOOD = IsolationSeen(
    processes=(process(BROWSER, words=WORDS), process(RENDERER, seccomp=2), process(NETWORK_SERVICE)),
    network=NETWORK,
    folders=tuple((path, size, True) for path, size, _ in writable_folders(FolderSizes())),
)


def with_processes(*processes: ProcessSeen) -> IsolationSeen:
    return msgspec.structs.replace(GOOD, processes=processes)


def with_network(**changes: object) -> IsolationSeen:
    return msgspec.structs.replace(GOOD, network=msgspec.structs.replace(NETWORK, **changes))


def test_all_up() -> None:
    receipt = judge_isolation(PLAN, GOOD)
    assert receipt.held and receipt.down() == ()
    assert {line.fence for line in receipt.lines} == set(IsolationLayer)
    refuse_down(receipt)


BROKEN = {
    "no proxy": (IsolationLayer.FLAGS, with_processes(process(BROWSER, words=("chromium",)), *GOOD.processes[1:])),
    "two browsers": (IsolationLayer.FLAGS, with_processes(*GOOD.processes, process(BROWSER, words=WORDS))),
    "host network": (IsolationLayer.NAMESPACE, with_network(is_own=False)),
    "another interface": (IsolationLayer.NAMESPACE, with_network(interfaces=("lo", "eth0"))),
    "a route": (IsolationLayer.NAMESPACE, with_network(routes=("0 over lo",))),
    "no guard": (IsolationLayer.GUARD, with_network(listening=())),
    "a second listener": (IsolationLayer.GUARD, with_network(listening=(*NETWORK.listening, ("0.0.0.0", 9222)))),
    "root": (IsolationLayer.ACCOUNT, with_processes(*GOOD.processes, process("gpu-process", uid=0))),
    "capabilities": (
        IsolationLayer.ACCOUNT,
        with_processes(process(BROWSER, words=WORDS, capabilities=1), *GOOD.processes[1:]),
    ),
    "no limit": (
        IsolationLayer.FOLDERS,
        msgspec.structs.replace(GOOD, folders=tuple((path, 1 << 50, True) for path, _, _ in GOOD.folders)),
    ),
    "no folder": (IsolationLayer.FOLDERS, msgspec.structs.replace(GOOD, folders=())),
    "renderer without filter": (
        IsolationLayer.OWN_SANDBOX,
        with_processes(*GOOD.processes, process(RENDERER, seccomp=0)),
    ),
    "no renderer": (IsolationLayer.OWN_SANDBOX, with_processes(GOOD.processes[0], GOOD.processes[2])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_fence_that_is_down_is_named_and_refused(name: str) -> None:
    fence, seen = BROKEN[name]
    receipt = judge_isolation(PLAN, seen)
    assert receipt.down() == (fence,)
    assert not receipt.line(fence).held
    with pytest.raises(IsolationDown) as refused:
        refuse_down(receipt)
    assert refused.value.details["fences"] == [str(fence)]


def test_an_allowed_fallback_is_down_in_the_receipt_and_waives_nothing_else() -> None:
    plan = msgspec.structs.replace(PLAN, own_sandbox=False)
    words = (*WORDS, "--no-sandbox")
    seen = with_processes(process(BROWSER, words=words), process(RENDERER, seccomp=0), process(NETWORK_SERVICE))
    receipt = judge_isolation(plan, seen)
    assert not receipt.held and receipt.waived == (IsolationLayer.OWN_SANDBOX,)
    assert "allow_no_sandbox" in receipt.line(IsolationLayer.OWN_SANDBOX).got
    refuse_down(receipt)
    away = msgspec.structs.replace(seen, network=msgspec.structs.replace(NETWORK, is_own=False))
    assert judge_isolation(plan, away).down() == (IsolationLayer.NAMESPACE,)


def test_no_sandbox_without_leave_is_down() -> None:
    seen = with_processes(process(BROWSER, words=(*WORDS, "--no-sandbox")), *GOOD.processes[1:])
    assert judge_isolation(PLAN, seen).down() == (IsolationLayer.OWN_SANDBOX,)


def test_nothing_is_judged_before_every_helper_is_there() -> None:
    assert GOOD.complete
    for number in range(3):
        assert not with_processes(*GOOD.processes[:number], *GOOD.processes[number + 1 :]).complete


def test_the_receipt_is_plain_values() -> None:
    shown = msgspec.to_builtins(judge_isolation(PLAN, GOOD))
    assert shown["lines"][0] == {
        "fence": "flags",
        "asked": "everything through the guard",
        "got": "all in force",
        "held": True,
    }
