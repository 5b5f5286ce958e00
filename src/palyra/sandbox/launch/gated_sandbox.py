"""A sandbox in which bubblewrap itself waits before it starts the program.

The runner uses it where no process can wait inside: see ``built_sandbox``. bubblewrap names the sandbox's first process
on one descriptor, builds the sandbox, gives up its last capability, and waits on another descriptor. Without
capabilities nothing of the sandbox can change any more, and everything but the system call filter can be read.
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from palyra.sandbox import limits
from palyra.sandbox.domain.network import NetworkSeen
from palyra.sandbox.domain.plan import BubblewrapPlan
from palyra.sandbox.domain.profile import LAYERS_OF_RUNNER, Layer, Receipt, refuse_unmet
from palyra.sandbox.verify.evidence import FILTER_MODE, filter_line, parse_status, receipt_lines
from palyra.sandbox.verify.readback import NotBuilt, Readback
from palyra.workspace.root import hold

_NO_CAPABILITIES: Final = re.compile(rb"^CapPrm:\t0+$", re.MULTILINE)


class Gate:
    """The two pipes between the daemon and bubblewrap. Only ``release`` starts the program.

    bubblewrap goes on when the block pipe closes, so a crash of the daemon would start the program unchecked.
    Therefore its end is open in both directions: it holds the pipe open itself, and waits until it is killed.
    ``child_descriptors`` go to the launcher in the order of the plan's ``pass_fds``; ``hand_over`` then closes them
    here, so that the end of bubblewrap closes the pipe.
    """

    def __init__(self) -> None:
        # True once the program may have run.
        self.released = False
        self.info, self._info_child = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._info_child, True)
        reading, self._block = os.pipe2(os.O_CLOEXEC)
        with hold(reading):
            self._block_child = os.open(f"/proc/self/fd/{reading}", os.O_RDWR | os.O_CLOEXEC)

    @property
    def child_descriptors(self) -> tuple[int, int]:
        return self._info_child, self._block_child

    def hand_over(self) -> None:
        self._info_child = _closed(self._info_child)
        self._block_child = _closed(self._block_child)

    async def describe(self, seconds: float = limits.READBACK_SECONDS) -> dict[str, Any]:
        """Return bubblewrap's description of the sandbox."""
        loop = asyncio.get_running_loop()
        text = b""
        readable = asyncio.Event()
        loop.add_reader(self.info, readable.set)
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await readable.wait()
                    readable.clear()
                    text, info = self.read_more(text)
                    if info is not None:
                        return info
        except TimeoutError as error:
            raise NotBuilt(f"bubblewrap built no sandbox within {seconds:.0f} s") from error
        finally:
            loop.remove_reader(self.info)

    def read_more(self, text: bytes) -> tuple[bytes, dict[str, Any] | None]:
        try:
            part = os.read(self.info, limits.MAX_INFO_BYTES)
        except BlockingIOError:
            return text, None
        text += part
        if text.rstrip().endswith(b"}"):
            return text, dict(json.loads(text))
        if not part or len(text) > limits.MAX_INFO_BYTES:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        return text, None

    def release(self) -> None:
        """Let the program start."""
        self.released = True
        os.write(self._block, b"1")
        self._block = _closed(self._block)

    def close(self) -> None:
        self.hand_over()
        self.info = _closed(self.info)
        self._block = _closed(self._block)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1


class GatedReadback(Readback):
    def settle(self, seconds: float = limits.READBACK_SECONDS) -> None:
        """Wait, in a thread, until the sandbox is complete. bubblewrap does not report that, so poll its status."""
        deadline = time.monotonic() + seconds
        time.sleep(limits.SETTLE_FIRST_SECONDS)
        pause = limits.SETTLE_POLL_SECONDS
        while not self._is_complete(deadline, seconds):
            time.sleep(pause)
            pause = min(pause * 1.1, limits.LONGEST_POLL_SECONDS)

    def _is_complete(self, deadline: float, seconds: float) -> bool:
        try:
            status = self._read("status")
        except OSError as error:
            raise NotBuilt("bubblewrap ended before the sandbox was built") from error
        if _NO_CAPABILITIES.search(status):
            return True
        if b"\nState:\tZ" in status:
            raise NotBuilt("bubblewrap ended before the sandbox was built")
        if time.monotonic() > deadline:
            raise NotBuilt(f"bubblewrap built no sandbox within {seconds:.0f} s")
        return False

    def filter_mode(self) -> str | None:
        """Return the Seccomp field after release, or None if the process ended before the filter was seen."""
        deadline = time.monotonic() + limits.FILTER_LOOK_SECONDS
        pause = limits.SETTLE_POLL_SECONDS
        while True:
            try:
                mode = parse_status(self._read("status").decode("utf-8", "replace")).get("Seccomp")
            except OSError:
                return None
            if mode in (None, FILTER_MODE) or time.monotonic() > deadline:
                return mode
            # The sandbox needs the processor more than this process does.
            time.sleep(pause)
            pause = min(pause * 1.5, limits.LONGEST_POLL_SECONDS)


def release_checked(
    plan: BubblewrapPlan,
    gate: Gate,
    waiting: GatedReadback,
    look_at_network: Callable[[Readback], NetworkSeen | None] = lambda _: None,
) -> Receipt:
    """Wait until the sandbox is complete, refuse it unless every required layer holds, and let the program start.

    It blocks for some milliseconds, so it needs a thread. The filter cannot be read before the start: this checks
    before it that a filter was given, and right after it that the filter is in force. If this raises, the caller ends
    the sandbox: until its release it does not end with bubblewrap's other process.
    """
    waiting.settle()
    required = plan.profile.required_layers
    seen = waiting.evidence(plan, look_at_network(waiting))
    receipt = Receipt.of((*receipt_lines(plan, seen), waiting.limit_processes(plan)))
    refuse_unmet(receipt, required - LAYERS_OF_RUNNER - {Layer.SECCOMP})
    filtered = required & {Layer.SECCOMP}
    refuse_unmet(Receipt.of([filter_line(plan, None)]), filtered)
    gate.release()
    receipt = receipt.with_lines([filter_line(plan, waiting.filter_mode())])
    refuse_unmet(receipt, filtered)
    return receipt
