"""From what was read to the receipt: each layer fails alone when its own evidence is wrong."""

from typing import Any

import msgspec
import pytest

from fakes.isolation_plan import plan
from palyra.sandbox.domain.facts import HostHold, Identity
from palyra.sandbox.domain.network import ListenerSeen, NetworkPlan, NetworkSeen
from palyra.sandbox.domain.profile import Layer
from palyra.sandbox.verify.evidence import (
    Evidence,
    MountSeen,
    filter_line,
    parse_limits,
    parse_mounts,
    parse_status,
    receipt_lines,
    rlimits_line,
)

NAMES = ("user", "pid", "net", "mnt", "ipc", "uts", "cgroup")


BUILDER = tuple(
    MountSeen(path=path, read_only=read_only, kind="ext4")
    for path, read_only in (
        (b"/", True),
        (b"/proc", False),
        (b"/new/dev/pts", False),
        (b"/new/home/a/work", False),
        (b"/new/home/a/work/disk", False),
    )
)
OPEN = MountSeen(path=b"/new/home/a/workbench", read_only=False, kind="ext4")


def good() -> Evidence:
    made = plan()
    mounts = [
        MountSeen(path=each.path, read_only=each.read_only, kind=each.kind or "ext4") for each in made.expected
    ] + [MountSeen(path=b"/dev/null", read_only=False, kind="devtmpfs")]
    return Evidence(
        pid=7,
        status={"NoNewPrivs": "1", **{f"Cap{name}": "0" * 16 for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}},
        namespaces={name: 100 + number for number, name in enumerate(NAMES)},
        own_namespaces=dict.fromkeys(NAMES, 1),
        outer_users=(50, 1),
        mounts=tuple(mounts),
        builder_mounts=BUILDER,
        identities={each.path: each.identity for each in made.expected if each.identity is not None},
        interfaces=("lo",),
        terminal=0,
        environment_bytes=0,
    )


def unheld(evidence: Evidence) -> set[Layer]:
    return {line.layer for line in receipt_lines(plan(), evidence) if not line.held}


def test_a_sandbox_as_planned_holds_every_layer() -> None:
    assert unheld(good()) == set()


def without(path: bytes) -> tuple[MountSeen, ...]:
    return tuple(mount for mount in good().mounts if mount.path != path)


def flipped(path: bytes) -> tuple[MountSeen, ...]:
    return tuple(
        msgspec.structs.replace(mount, read_only=not mount.read_only) if mount.path == path else mount
        for mount in good().mounts
    )


STRANGER = MountSeen(path=b"/root", read_only=True, kind="ext4")
WRITABLE = MountSeen(path=b"/usr/local", read_only=False, kind="ext4")
HOOKS = b"/home/a/work/.git/hooks"


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"namespaces": {**good().namespaces, "net": 1}}, {Layer.NETWORK_NAMESPACE}),
        ({"namespaces": {**good().namespaces, "user": 1}}, {Layer.USER_NAMESPACE}),
        ({"status": {**good().status, "CapBnd": "0000000000000400"}}, {Layer.CAPABILITIES}),
        ({"status": {**good().status, "NoNewPrivs": "0"}}, {Layer.NO_NEW_PRIVS}),
        ({"status": {}}, {Layer.CAPABILITIES, Layer.NO_NEW_PRIVS}),
        ({"outer_users": (1,)}, {Layer.NESTED_USERNS_OFF}),
        ({"outer_users": ()}, {Layer.NESTED_USERNS_OFF}),
        ({"outer_users": (50, 51)}, {Layer.NESTED_USERNS_OFF}),
        ({"builder_mounts": None}, {Layer.HOST_READ_ONLY}),
        ({"builder_mounts": (*BUILDER, OPEN)}, {Layer.HOST_READ_ONLY}),
        ({"terminal": 34816}, {Layer.NEW_SESSION}),
        ({"environment_bytes": 5}, {Layer.ENVIRONMENT}),
        ({"interfaces": ("lo", "eth0")}, {Layer.EGRESS}),
        ({"mounts": without(b"/proc")}, {Layer.MINIMAL_ROOT}),
        ({"mounts": flipped(b"/")}, {Layer.MINIMAL_ROOT}),
        ({"mounts": (*good().mounts, STRANGER)}, {Layer.MINIMAL_ROOT}),
        ({"mounts": (*good().mounts, WRITABLE)}, {Layer.MINIMAL_ROOT}),
        ({"mounts": flipped(b"/home/a/work")}, {Layer.WORKSPACE}),
        ({"mounts": flipped(HOOKS)}, {Layer.PROTECTED_NAMES}),
        ({"mounts": without(b"/home/a/work/.git")}, {Layer.PROTECTED_NAMES}),
        ({"identities": {**good().identities, HOOKS: Identity(9, 9)}}, {Layer.PROTECTED_NAMES}),
        ({"identities": {**good().identities, HOOKS: None}}, {Layer.PROTECTED_NAMES}),
        ({"identities": {**good().identities, b"/home/a/work": None}}, {Layer.WORKSPACE}),
    ],
)
def test_wrong_evidence_fails_its_own_layer(change: dict[str, Any], layers: set[Layer]) -> None:
    assert unheld(msgspec.structs.replace(good(), **change)) == layers


def test_allowed_hosts_need_the_sockets_that_serve_them() -> None:
    hosts = ("a.example:443",)
    wanted = NetworkPlan(ports=(443,))
    network = good().namespaces["net"]
    seen = NetworkSeen(
        listeners=tuple(
            ListenerSeen(each, each.address, each.port, not each.is_udp, False, network) for each in wanted.listeners()
        ),
        loopback_up=True,
        routes=(),
    )

    def held(**changes: Any) -> bool:
        lines = receipt_lines(plan(allowed_egress_hosts=hosts), msgspec.structs.replace(good(), **changes))
        return next(line for line in lines if line.layer is Layer.EGRESS).held

    assert held(network=seen)
    assert not held(network=None)
    assert not held(network=seen, interfaces=("lo", "eth0"))
    assert not held(network=seen, namespaces={**good().namespaces, "net": 999})
    assert not held(network=msgspec.structs.replace(seen, routes=("00000000 over eth0",)))


def test_the_namespace_that_holds_the_host_does_not_count_as_bubblewraps_own() -> None:
    """Held from a user namespace there is one more around the sandbox, which allows nested ones."""
    facts = plan().facts
    host = msgspec.structs.replace(facts.host, hold=HostHold.USER_NAMESPACE)
    made = msgspec.structs.replace(plan(), facts=msgspec.structs.replace(facts, host=host))

    def closed(*outer: int) -> bool:
        evidence = msgspec.structs.replace(good(), outer_users=outer)
        return all(line.held for line in receipt_lines(made, evidence))

    assert closed(50, 49, 1)
    assert not closed(49, 1)


def test_a_read_only_workspace_is_not_writable_for_bubblewrap_either() -> None:
    made = plan()
    made = msgspec.structs.replace(made, profile=msgspec.structs.replace(made.profile, read_only=True))
    assert Layer.HOST_READ_ONLY in {line.layer for line in receipt_lines(made, good()) if not line.held}


def test_mounts_are_read_with_their_escapes_and_the_last_one_counts() -> None:
    text = (
        b"65 42 0:40 /newroot / ro,nosuid - tmpfs tmpfs rw\n"
        b"66 65 254:0 /w /a\\040b\\012c\\134d rw,relatime shared:1 - ext4 /dev/vda rw\n"
        b"67 65 254:0 /w /a\\040b\\012c\\134d ro - ext4 /dev/vda rw\n"
    )
    assert parse_mounts(text) == (
        MountSeen(path=b"/", read_only=True, kind="tmpfs"),
        MountSeen(path=b"/a b\nc\\d", read_only=True, kind="ext4"),
    )


def test_of_writable_mounts_every_one_counts() -> None:
    text = (
        b"65 42 0:40 / / ro,nosuid shared:1 master:2 - tmpfs tmpfs rw\n"
        b"66 65 254:0 /w /a rw,relatime - ext4 /dev/vda rw\n"
        b"67 65 254:0 /w /a ro - ext4 /dev/vda rw\n"
    )
    assert parse_mounts(text, only_writable=True) == (MountSeen(path=b"/a", read_only=False, kind="ext4"),)


@pytest.mark.parametrize(
    "line", [b"broken line\n", b"\n", b"65 42 0:40 / / ro,nosuid tmpfs tmpfs rw\n", b"65 42 0:40 /\n"]
)
def test_a_table_with_a_line_that_is_not_understood_is_not_judged(line: bytes) -> None:
    with pytest.raises(ValueError, match="not understood"):
        parse_mounts(b"65 42 0:40 / / ro,nosuid - tmpfs tmpfs rw\n" + line)


def test_status_and_limits_are_read() -> None:
    assert parse_status("Name:\tx: y\nSeccomp:\t2\n") == {"Name": "x: y", "Seccomp": "2"}
    text = (
        "Limit  Soft Limit  Hard Limit  Units\nMax cpu time              60                   61         seconds   \n"
    )
    assert parse_limits(text) == {"Max cpu time": "60"}


def test_the_filter_is_told_by_what_was_seen() -> None:
    assert filter_line(plan(), "2").held
    assert not filter_line(plan(), "0").held
    assert filter_line(plan(), None).held
    assert "had ended" in filter_line(plan(), None).got


def test_limits_hold_when_they_are_at_most_what_was_asked() -> None:
    seen = {
        "Max cpu time": "60",
        "Max address space": "1000",
        "Max data size": "1000",
        "Max open files": "1024",
        "Max file size": "1073741824",
        "Max core file size": "0",
        "Max processes": "256",
    }
    assert rlimits_line(plan(), seen, uid=1).held
    assert "does not bind" in rlimits_line(plan(), seen, uid=0).got
    assert not rlimits_line(plan(), {**seen, "Max processes": "unlimited"}, uid=1).held
    assert not rlimits_line(plan(), {}, uid=1).held
