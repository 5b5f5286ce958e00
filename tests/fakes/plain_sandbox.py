"""A sandbox that holds nothing: the same programs in an ordinary process. The control of the attacks."""

import asyncio
import os
import signal
import subprocess

from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, SandboxProfile
from palyra.sandbox.running_process import Sink


class PlainSandbox:
    """Claims every layer and enforces none."""

    def __init__(self) -> None:
        self._groups: list[int] = []

    async def run_constrained_process(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> ProcessOutcome:
        return await asyncio.to_thread(self._run, profile, command)

    def _run(self, profile: SandboxProfile, command: ProcessCommand) -> ProcessOutcome:
        environment = {**os.environ, **dict(command.env)}
        reading, writing = os.pipe()
        process = subprocess.Popen(
            list(command.argv),
            cwd=profile.workspace_root,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=writing,
            stderr=subprocess.DEVNULL,
            # What the runner left open for it is inherited here.
            close_fds=False,
            start_new_session=True,
        )
        os.close(writing)
        self._groups.append(process.pid)
        process.communicate(command.stdin)
        os.set_blocking(reading, False)
        try:
            output = os.read(reading, 65536)
        except BlockingIOError:
            output = b""
        os.close(reading)
        lines = [ReceiptLine(layer=layer, asked="all", got="none", held=True) for layer in Layer]
        return ProcessOutcome(
            exit_code=process.returncode if process.returncode >= 0 else None,
            signal=None if process.returncode >= 0 else -process.returncode,
            stdout=output,
            stderr=b"",
            stdout_truncated=False,
            stderr_truncated=False,
            duration_ms=0,
            tier=profile.tier,
            backend="plain",
            receipt=Receipt.of(lines),
        )

    async def close(self) -> None:
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue
