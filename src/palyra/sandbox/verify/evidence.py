"""The evidence that was read of a waiting sandbox from outside, and the receipt that follows from it.

Pure. Every line names its source; a layer that was demanded and not seen did not hold.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from palyra.sandbox.domain.facts import HostHold, Identity
from palyra.sandbox.domain.launch_spec import BESIDE_ROOT, MADE_ROOT, RLimit, build_tier_c_rlimits
from palyra.sandbox.domain.network import NetworkSeen, describe_egress, describe_network, judge_network, plan_network
from palyra.sandbox.domain.plan import BubblewrapPlan, ExpectedMount, is_covered
from palyra.sandbox.domain.profile import EgressEnforcementMode, Layer, ReceiptLine
from palyra.workspace.names import decode_name, render_name

NAMESPACES: Final = ("user", "pid", "net", "mnt", "ipc", "uts", "cgroup")
CAPABILITY_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
FILTER_MODE: Final = "2"

_LAYER_OF_NAMESPACE: Final = {
    "user": Layer.USER_NAMESPACE,
    "pid": Layer.PID_NAMESPACE,
    "net": Layer.NETWORK_NAMESPACE,
    "mnt": Layer.MOUNT_NAMESPACE,
    "ipc": Layer.IPC_NAMESPACE,
    "uts": Layer.UTS_NAMESPACE,
    "cgroup": Layer.CGROUP_NAMESPACE,
}
_LIMIT_NAMES: Final = {
    "CPU": "Max cpu time",
    "AS": "Max address space",
    "DATA": "Max data size",
    "NOFILE": "Max open files",
    "FSIZE": "Max file size",
    "CORE": "Max core file size",
    "NPROC": "Max processes",
}
# A table is read by one expression, without a step of Python for each word.
_MOUNT: Final = re.compile(rb"^\d+ [^ ]+ [^ ]+ [^ ]+ ([^ ]+) ([^ ]+) (?:[^-\n][^ \n]* )*- ([^ \n]+)", re.MULTILINE)
_LIMIT: Final = re.compile(r"^(Max \S+(?: \S+)*) {2,}(\S+) +\S+", re.MULTILINE)
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")
_SOURCE: Final = "before the program started, from /proc of its first process"


class MountSeen(msgspec.Struct, frozen=True, kw_only=True):
    path: bytes
    read_only: bool
    kind: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that were read while the sandbox waits.

    ``outer_users`` are the user namespaces around its own, from the nearest to the launcher's. ``builder_mounts`` are
    the writable mounts of the bubblewrap process that made it and stays outside, or None if they are the launcher's.
    """

    pid: int
    status: dict[str, str]
    namespaces: dict[str, int]
    own_namespaces: dict[str, int]
    outer_users: tuple[int, ...]
    mounts: tuple[MountSeen, ...]
    builder_mounts: tuple[MountSeen, ...] | None
    identities: dict[bytes, Identity | None]
    interfaces: tuple[str, ...]
    terminal: int
    environment_bytes: int
    # Of the sockets that were opened in its network, where hosts are allowed.
    network: NetworkSeen | None = None


def parse_status(text: str) -> dict[str, str]:
    """Parse /proc/PID/status."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines()) if value}


def parse_mounts(text: bytes, *, only_writable: bool = False) -> tuple[MountSeen, ...]:
    """Parse /proc/PID/mountinfo.

    If several mounts lie on one path, the last hides the others; of the writable ones, every one counts. A line that
    is not understood raises ``ValueError``: it cannot be judged.
    """
    found = _MOUNT.findall(text)
    if len(found) != text.count(b"\n"):
        raise ValueError("the table of mounts has a line that is not understood")
    seen: dict[bytes, MountSeen] = {}
    for path, options, kind in found:
        read_only = b"ro" in options.split(b",")
        if only_writable and read_only:
            continue
        if b"\\" in path:
            path = _OCTAL.sub(lambda each: bytes([int(each[1], 8)]), path)
        seen[path] = MountSeen(path=path, read_only=read_only, kind=kind.decode("ascii", "replace"))
    return tuple(seen.values())


def parse_limits(text: str) -> dict[str, str]:
    """Parse the soft limits of /proc/PID/limits, by their printed names."""
    return dict(_LIMIT.findall(text))


def receipt_lines(plan: BubblewrapPlan, evidence: Evidence) -> tuple[ReceiptLine, ...]:
    """Judge everything that is visible before the program runs. The system call filter has its own line."""
    seen = {mount.path: mount for mount in evidence.mounts}
    return (
        *_namespace_lines(plan, evidence),
        _line(
            Layer.CAPABILITIES,
            "none in any set",
            _fields(evidence.status, CAPABILITY_SETS),
            held=all(set(evidence.status.get(name, "?")) == {"0"} for name in CAPABILITY_SETS),
        ),
        _line(
            Layer.NO_NEW_PRIVS,
            "set",
            f"NoNewPrivs {evidence.status.get('NoNewPrivs')}",
            held=evidence.status.get("NoNewPrivs") == "1",
        ),
        _line(
            Layer.NEW_SESSION, "no controlling terminal", f"terminal {evidence.terminal}", held=evidence.terminal == 0
        ),
        _nested(plan, evidence),
        _host_read_only(plan, evidence),
        _minimal_root(plan, evidence, seen),
        _workspace(plan, evidence, seen),
        _protected(plan, evidence, seen),
        environment_line(len(plan.environment), evidence.environment_bytes),
        _egress(plan, evidence),
    )


def environment_line(variables: int, launchers_bytes: int) -> ReceiptLine:
    return _line(
        Layer.ENVIRONMENT,
        f"{variables} variables and no other",
        f"{launchers_bytes} bytes of the launcher's own environment",
        held=launchers_bytes == 0,
    )


def filter_line(plan: BubblewrapPlan, seen: str | None, *, waits_inside: bool = False) -> ReceiptLine:
    """Judge the Seccomp field of the sandbox's first process after release, or None if it had ended already.

    With ``waits_inside`` it was read before, of the process that becomes the program. The first process and the
    program load the same filter just before they go on, and bubblewrap ends if it cannot load it. So a sandbox that
    ran its program and ended before it was read had the filter too.
    """
    program = plan.facts.seccomp
    if program is None:
        return ReceiptLine(layer=Layer.SECCOMP, asked="a filter", got="no filter was given", held=False)
    asked = f"a filter of {len(program) // 8} instructions"
    if seen is None:
        got = "loaded by bubblewrap, which ends where it cannot; the process had ended before /proc was read"
        return ReceiptLine(layer=Layer.SECCOMP, asked=asked, got=got, held=True)
    when = "before the program started, from /proc of the process that became it"
    got = f"Seccomp {seen} ({when if waits_inside else 'after release, from /proc of its first process'})"
    return ReceiptLine(layer=Layer.SECCOMP, asked=asked, got=got, held=seen == FILTER_MODE)


def rlimits_line(plan: BubblewrapPlan, seen: Mapping[str, str], *, uid: int) -> ReceiptLine:
    """Judge the soft limits of the sandbox's first process, which the program inherits."""
    wanted = {limit.name: limit.soft for limit in plan_limits(plan)} | {"NPROC": plan.profile.limits.pids}
    got = {name: seen.get(_LIMIT_NAMES[name], "unknown") for name in wanted}
    note = "" if uid else "; NPROC does not bind the host's root user: the cgroup's limit does"
    return _line(
        Layer.RLIMITS,
        ", ".join(f"{name} {value}" for name, value in wanted.items()),
        ", ".join(f"{name} {value}" for name, value in got.items()) + note,
        # A machine may allow less than was demanded.
        held=all(got[name].isdigit() and int(got[name]) <= value for name, value in wanted.items()),
    )


def plan_limits(plan: BubblewrapPlan) -> tuple[RLimit, ...]:
    return build_tier_c_rlimits(plan.profile.limits, memory_is_counted=plan.memory_is_counted)


def _namespace_lines(plan: BubblewrapPlan, evidence: Evidence) -> Iterable[ReceiptLine]:
    for name in NAMESPACES:
        inside, outside = evidence.namespaces.get(name), evidence.own_namespaces.get(name)
        apart = inside is not None and inside != outside
        if name in plan.unshared:
            got = f"{name}:[{inside}], not the launcher's [{outside}]" if apart else f"{name}:[{inside}], shared"
            yield _line(_LAYER_OF_NAMESPACE[name], "its own", got, held=apart)
        else:
            yield _line(_LAYER_OF_NAMESPACE[name], "the host's", f"{name}:[{inside}]", held=not apart)


def _nested(plan: BubblewrapPlan, evidence: Evidence) -> ReceiptLine:
    """Judge the namespace in which bubblewrap forbids further ones, and which it puts around the sandbox's own.

    If the host is held read-only from a user namespace, that one lies around both and proves nothing here.
    """
    between = _before(evidence.outer_users, evidence.own_namespaces.get("user"))
    held_from = int(plan.facts.host.hold is HostHold.USER_NAMESPACE)
    closed = between is not None and len(between) == held_from + 1
    if between is not None and closed:
        got = f"within user:[{between[0]}], which bubblewrap has set to allow no more"
    else:
        got = f"{len(between) if between is not None else 'unknown'} user namespaces around its own"
    return _line(Layer.NESTED_USERNS_OFF, "no further user namespaces", got, held=closed)


def _before(outer: tuple[int, ...], own: int | None) -> tuple[int, ...] | None:
    return outer[: outer.index(own)] if own in outer else None


def _host_read_only(plan: BubblewrapPlan, evidence: Evidence) -> ReceiptLine:
    asked = "bubblewrap itself can write nothing but the workspace, /proc and the sandbox's own terminals"
    if evidence.builder_mounts is None:
        got = "it has the launcher's own mounts, and trusts that nobody renames directories of the workspace meanwhile"
        return _line(Layer.HOST_READ_ONLY, asked, got, held=False)
    root = plan.facts.workspace.root
    place = (BESIDE_ROOT if is_covered(root) else MADE_ROOT) + root
    open_to_it = (b"/proc", MADE_ROOT + b"/dev/pts", *(() if plan.profile.read_only else (place,)))
    writable = [
        _render(mount.path)
        for mount in evidence.builder_mounts
        if not mount.read_only and not any((mount.path + b"/").startswith(place + b"/") for place in open_to_it)
    ]
    got = f"{', '.join(writable[:3]) or 'no other mount'} is writable"
    return ReceiptLine(
        layer=Layer.HOST_READ_ONLY,
        asked=asked,
        got=f"{got} (before the program started, from /proc of bubblewrap)",
        held=not writable,
    )


def _minimal_root(plan: BubblewrapPlan, evidence: Evidence, seen: Mapping[bytes, MountSeen]) -> ReceiptLine:
    system = [each for each in plan.expected if each.identity is None]
    wrong = [*_mismatches(system, seen), *_strangers(plan, evidence)]
    asked = f"{len(system)} mounts and no other"
    if wrong:
        return _line(Layer.MINIMAL_ROOT, asked, "; ".join(wrong[:3]), held=False)
    return _line(Layer.MINIMAL_ROOT, asked, f"{len(system)} mounts as planned", held=True)


def _strangers(plan: BubblewrapPlan, evidence: Evidence) -> list[str]:
    """List the mounts that the plan does not have, and the writable ones within read-only trees."""
    expected = {each.path: each for each in plan.expected}
    wrong: list[str] = []
    for mount in evidence.mounts:
        if mount.path in expected or mount.path.startswith((b"/dev/", b"/proc/")):
            continue
        above = _nearest(mount.path, expected)
        if above is None or above.path == b"/":
            wrong.append(f"{_render(mount.path)} is mounted and was not planned")
        elif above.read_only and not mount.read_only:
            wrong.append(f"{_render(mount.path)} is writable within read-only {_render(above.path)}")
    return wrong


def _nearest(path: bytes, expected: Mapping[bytes, ExpectedMount]) -> ExpectedMount | None:
    while path not in (b"", b"/"):
        path = path.rpartition(b"/")[0] or b"/"
        if path in expected:
            return expected[path]
    return None


def _mismatches(expected: Iterable[ExpectedMount], seen: Mapping[bytes, MountSeen]) -> list[str]:
    wrong: list[str] = []
    for each in expected:
        mount = seen.get(each.path)
        if mount is None:
            wrong.append(f"{_render(each.path)} is not mounted")
        elif mount.read_only is not each.read_only:
            wrong.append(f"{_render(each.path)} is {'read-only' if mount.read_only else 'writable'}")
        elif each.kind and mount.kind != each.kind:
            wrong.append(f"{_render(each.path)} is a {mount.kind}")
    return wrong


def _moved(expected: Iterable[ExpectedMount], evidence: Evidence) -> list[str]:
    return [
        f"{_render(each.path)} is not what was looked at"
        for each in expected
        if each.identity is not None and evidence.identities.get(each.path) != each.identity
    ]


def _workspace(plan: BubblewrapPlan, evidence: Evidence, seen: Mapping[bytes, MountSeen]) -> ReceiptLine:
    root = [each for each in plan.expected if each.path == plan.facts.workspace.root]
    wrong = [*_mismatches(root, seen), *_moved(root, evidence)]
    asked = f"{'read-only' if plan.profile.read_only else 'writable'} at its own path"
    if wrong or not root:
        return _line(Layer.WORKSPACE, asked, "; ".join(wrong) or "not planned", held=False)
    return _line(Layer.WORKSPACE, asked, f"{asked}, the same inode", held=True)


def _protected(plan: BubblewrapPlan, evidence: Evidence, seen: Mapping[bytes, MountSeen]) -> ReceiptLine:
    facts, profile = plan.facts.workspace, plan.profile
    asked = f"{len(profile.protected_names)} patterns"
    if profile.read_only:
        return _line(Layer.PROTECTED_NAMES, asked, "the whole workspace is read-only", held=True)
    mounts = [each for each in plan.expected if each.identity is not None and each.path != facts.root]
    wrong = [*_mismatches(mounts, seen), *_moved(mounts, evidence)]
    if wrong:
        return _line(Layer.PROTECTED_NAMES, asked, "; ".join(wrong[:3]), held=False)
    sealed = sum(each.read_only for each in mounts)
    said = [f"{sealed} read-only, {len(mounts) - sealed} directories above them mounted in place"]
    if facts.unseen:
        said.append(f"{facts.unseen} not looked through and read-only as a whole ({facts.shortfall})")
    if facts.watched_links:
        said.append(f"{facts.watched_links} links watched, not mounted")
    if facts.hard_links:
        said.append(f"{facts.hard_links} of them other names of protected files")
    return _line(Layer.PROTECTED_NAMES, asked, "; ".join(said), held=True)


def _egress(plan: BubblewrapPlan, evidence: Evidence) -> ReceiptLine:
    mode = plan.profile.egress
    if mode is not EgressEnforcementMode.STRICT:
        return _line(Layer.EGRESS, mode.value, "the host's network; arguments are judged before the start", held=True)
    if plan.profile.reaches_hosts:
        network = plan_network(plan.profile)
        wrong = judge_network(
            network, evidence.network, namespace=evidence.namespaces.get("net", 0), interfaces=evidence.interfaces
        )
        held = not wrong and "net" in plan.unshared
        return _line(Layer.EGRESS, describe_egress(plan.profile), describe_network(network, wrong), held=held)
    alone = set(evidence.interfaces) <= {"lo"}
    got = f"interfaces: {', '.join(evidence.interfaces) or 'none'}"
    return _line(Layer.EGRESS, mode.value, got, held=alone and "net" in plan.unshared)


def _fields(status: Mapping[str, str], names: Iterable[str]) -> str:
    return ", ".join(f"{name} {status.get(name, 'unknown')}" for name in names)


def _line(layer: Layer, asked: str, got: str, *, held: bool) -> ReceiptLine:
    return ReceiptLine(layer=layer, asked=asked, got=f"{got} ({_SOURCE})", held=held)


def _render(path: bytes) -> str:
    return render_name(decode_name(path))
