"""Judges the isolation layers of a browser from what was read off the running processes."""

from enum import StrEnum
from typing import Final

import msgspec

from palyra.browser.domain.limits import GUARD_PORT
from palyra.browser.engine.launch_plan import NO_SANDBOX, ChromiumPlan, missing_guard_flags, writable_folders
from palyra.errors import Unavailable

# From linux/seccomp.h: a filter is in force.
SECCOMP_FILTER: Final = 2
RENDERER: Final = "renderer"
NETWORK_SERVICE: Final = "network.mojom.NetworkService"
BROWSER: Final = "browser"
UNNAMED: Final = "unnamed"

_SHOWN_FAULTS: Final = 4
_PAGE: Final = 65_536


class IsolationDown(Unavailable):
    code = "browser.fence_down"
    hint = "`palyra doctor` checks what this machine can enforce; without a renderer's sandbox nothing runs unless browser.allow_no_sandbox says so"  # noqa: E501


class IsolationLayer(StrEnum):
    FLAGS = "flags"
    NAMESPACE = "namespace"
    GUARD = "guard"
    ACCOUNT = "account"
    FOLDERS = "folders"
    OWN_SANDBOX = "own_sandbox"


class IsolationLine(msgspec.Struct, frozen=True, kw_only=True):
    fence: IsolationLayer
    asked: str
    got: str
    held: bool


class IsolationReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """``waived``: layers that are down because the operator allowed it."""

    lines: tuple[IsolationLine, ...]
    waived: tuple[IsolationLayer, ...] = ()

    @property
    def held(self) -> bool:
        return all(line.held for line in self.lines)

    def line(self, layer: IsolationLayer) -> IsolationLine:
        return next(line for line in self.lines if line.fence is layer)

    def down(self) -> tuple[IsolationLayer, ...]:
        return tuple(line.fence for line in self.lines if not line.held and line.fence not in self.waived)


class ProcessSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the tree as the host sees it. ``kind`` is its type, or the service of a utility process."""

    pid: int
    started: int = 0
    kind: str
    uid: int
    seccomp: int
    capabilities: int
    words: tuple[str, ...] = ()


class NetworkSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The network that Chromium is in. ``listening``: addresses and ports of listening TCP sockets."""

    is_own: bool
    interfaces: tuple[str, ...]
    routes: tuple[str, ...]
    listening: tuple[tuple[str, int], ...]


class IsolationSeen(msgspec.Struct, frozen=True, kw_only=True):
    """``folders``: path, size in bytes, and whether it is a file system of its own."""

    processes: tuple[ProcessSeen, ...]
    network: NetworkSeen
    folders: tuple[tuple[str, int, bool], ...]

    def of(self, kind: str) -> tuple[ProcessSeen, ...]:
        return tuple(each for each in self.processes if each.kind == kind)

    @property
    def complete(self) -> bool:
        """Whether every process that will be judged is there: helpers start a moment after the first reply."""
        return all(self.of(kind) for kind in (BROWSER, RENDERER, NETWORK_SERVICE))


def judge_isolation(plan: ChromiumPlan, seen: IsolationSeen) -> IsolationReceipt:
    waived = () if plan.own_sandbox else (IsolationLayer.OWN_SANDBOX,)
    return IsolationReceipt(
        lines=(
            _line(IsolationLayer.FLAGS, "everything through the guard", "all in force", _judge_flags(seen)),
            _line(
                IsolationLayer.NAMESPACE, "a network of its own", "only lo, no route", _judge_namespace(seen.network)
            ),
            _line(
                IsolationLayer.GUARD,
                f"listens at 127.0.0.1:{GUARD_PORT} and nothing else does",
                "so it is",
                _judge_guard(seen),
            ),
            _line(
                IsolationLayer.ACCOUNT,
                f"uid {plan.account.uid}, no capabilities",
                "every process",
                _judge_account(plan, seen),
            ),
            _line(IsolationLayer.FOLDERS, "in memory, with a size limit", "each", _judge_folders(plan, seen)),
            _line(IsolationLayer.OWN_SANDBOX, "a filter in every renderer", "Seccomp: 2", _judge_own_sandbox(seen)),
        ),
        waived=waived,
    )


def refuse_down(receipt: IsolationReceipt) -> None:
    down = receipt.down()
    if down:
        texts = "; ".join(f"{layer}: {receipt.line(layer).got}" for layer in down)
        raise IsolationDown(f"a fence around the browser is down: {texts}", fences=[str(layer) for layer in down])


def _line(layer: IsolationLayer, asked: str, good: str, wrong: list[str]) -> IsolationLine:
    got = "; ".join(wrong[:_SHOWN_FAULTS]) if wrong else good
    return IsolationLine(fence=layer, asked=asked, got=got, held=not wrong)


def _judge_flags(seen: IsolationSeen) -> list[str]:
    browsers = seen.of(BROWSER)
    if len(browsers) != 1:
        return [f"{len(browsers)} browser processes were found"]
    return [f"--{name} is missing or differs" for name in missing_guard_flags(browsers[0].words)]


def _judge_namespace(network: NetworkSeen) -> list[str]:
    wrong = [] if network.is_own else ["it is in the host's network"]
    wrong += [f"an interface {name}" for name in network.interfaces if name != "lo"]
    return wrong + [f"a route {route}" for route in network.routes]


def _judge_guard(seen: IsolationSeen) -> list[str]:
    wanted = ("127.0.0.1", GUARD_PORT)
    listening = seen.network.listening
    wrong = [] if wanted in listening else ["nothing listens there"]
    return wrong + [
        f"something listens at {address}:{port}" for address, port in listening if (address, port) != wanted
    ]


def _judge_account(plan: ChromiumPlan, seen: IsolationSeen) -> list[str]:
    wrong = [f"{each.kind} runs as uid {each.uid}" for each in seen.processes if each.uid != plan.account.uid]
    wrong += ["it is root"] if plan.account.uid == 0 else []
    # Chromium's sandbox has capabilities in its own user namespace until it drops them.
    return wrong + [f"{each.kind} has capabilities" for each in seen.of(BROWSER) if each.capabilities]


def _judge_folders(plan: ChromiumPlan, seen: IsolationSeen) -> list[str]:
    found = {path: (size, apart) for path, size, apart in seen.folders}
    wrong: list[str] = []
    for path, size, _ in writable_folders(plan.sizes):
        got, apart = found.get(path, (0, False))
        # The kernel counts whole pages.
        if not apart or not 0 < got <= size + _PAGE:
            wrong.append(f"{path} has {got} bytes for {size}")
    return wrong


def _judge_own_sandbox(seen: IsolationSeen) -> list[str]:
    renderers = seen.of(RENDERER)
    wrong = [] if renderers else ["no renderer was found"]
    wrong += [f"a renderer has Seccomp: {each.seccomp}" for each in renderers if each.seccomp != SECCOMP_FILTER]
    off = any(f"--{NO_SANDBOX}" in each.words for each in seen.processes)
    return wrong + (["it runs with --no-sandbox, which browser.allow_no_sandbox allowed"] if off else [])
