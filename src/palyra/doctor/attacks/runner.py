"""Makes the attempts one after the other through the real runner, and judges each from outside."""

import asyncio
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec

from palyra.doctor.attacks.attempt import Attempt, fill_names
from palyra.doctor.attacks.catalogue import attempts_in
from palyra.doctor.attacks.decoys import BaitFolder, find_survivors
from palyra.doctor.attacks.verdict import Answer, AttackReport, NotAttacked, Observed, Verdict, judge, not_tried
from palyra.errors import PalyraError
from palyra.sandbox.domain.process_run import ProcessCommand, ProcessOutcome
from palyra.sandbox.domain.profile import Layer, NewProtectedPolicy, SandboxLimits, SandboxProfile, SandboxTier
from palyra.sandbox.layers.syscall_table import SYSCALLS
from palyra.sandbox.runner import ProcessRunner, RunnerSettings
from palyra.sandbox.running_process import Sink
from palyra.workspace.protected_table import PROTECTED_NAMES

SYSTEM_PYTHON: Final = "/usr/bin/python3"
# Longer than any attempt takes by itself.
ATTEMPT_TIMEOUT_MS: Final = 15_000
# How long a killed process may still show: the kernel takes its time with large ones.
SETTLE_LOOKS: Final = 25
SETTLE_STEP_SECONDS: Final = 0.02
_HELLO: Final = "hello"
_LISTENS: Final = "listen_tcp"

Progress = Callable[[SandboxTier, Attempt, int, int], None]


class Sandbox(Protocol):
    """The runner of the attempts: the real one, or in tests one that holds less."""

    async def run_constrained_process(
        self, profile: SandboxProfile, command: ProcessCommand, *, sink: Sink | None = None
    ) -> ProcessOutcome:
        """Run one program, or raise one of the sandbox's errors."""

    async def close(self) -> None:
        """End what the runner keeps ready."""


class Python(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreter for the attacking program, and the directories it needs in the sandbox."""

    program: str
    roots: tuple[str, ...] = ()


def find_python(system: str = SYSTEM_PYTHON) -> Python:
    if os.access(system, os.X_OK):
        return Python(program=system)
    return Python(program=os.path.realpath(sys.executable), roots=(os.path.realpath(sys.base_prefix),))


async def attack(
    tiers: tuple[SandboxTier, ...] = (SandboxTier.C, SandboxTier.B),
    *,
    protected_names: tuple[str, ...] = (),
    choose: Callable[[Attempt], bool] = lambda _: True,
    progress: Progress = lambda *_: None,
    sandbox: Callable[[str], Sandbox] = lambda scratch: ProcessRunner(RunnerSettings(scratch=scratch)),
    base: str | None = None,
) -> AttackReport:
    """Make all attempts. ``protected_names`` are the user's own; the names that serve as bait are protected too."""
    if sys.platform != "linux":
        raise NotAttacked("the attempts are made for Linux", hint="run it where the sandbox runs")
    since = time.monotonic()
    python = find_python()

    async def one(tier: SandboxTier) -> list[Verdict]:
        with _folder(base) as folder, BaitFolder(folder, python.program) as bait:
            runner = sandbox(bait.scratch)
            try:
                attacker = Attacker(bait, runner, python, (*PROTECTED_NAMES, *protected_names))
                return await attacker.make(tier, tuple(filter(choose, attempts_in(tier))), progress)
            finally:
                await runner.close()

    # Each tier has bait of its own, so that what one of them lets through is never blamed on the other.
    async with asyncio.TaskGroup() as together:
        working = [together.create_task(one(tier)) for tier in tiers]
    verdicts = tuple(verdict for task in working for verdict in task.result())
    return AttackReport(verdicts=verdicts, user=os.geteuid(), seconds=round(time.monotonic() - since, 1))


class Attacker:
    def __init__(self, bait: BaitFolder, runner: Sandbox, python: Python, protected: tuple[str, ...]) -> None:
        self.bait = bait
        self.runner = runner
        self.python = python
        self.protected = tuple(dict.fromkeys(protected))
        self.probes = os.path.join(os.path.dirname(__file__), "probes")
        self.calls = SYSCALLS.get(platform.machine(), {})

    async def make(self, tier: SandboxTier, attempts: tuple[Attempt, ...], progress: Progress) -> list[Verdict]:
        silent = await self._speechless(tier)
        verdicts: list[Verdict] = []
        for number, attempt in enumerate(attempts, start=1):
            progress(tier, attempt, number, len(attempts))
            if silent:
                verdicts.append(not_tried(attempt, tier, silent))
            else:
                observed = await self.observe(tier, attempt)
                verdicts.append(judge(attempt, tier, observed, root=os.geteuid() == 0))
        return verdicts

    async def _speechless(self, tier: SandboxTier) -> str:
        """Run the attacking program once. Returns why it cannot run in this tier, empty if it can."""
        greeting = Attempt(id=_HELLO, kind=attempts_in(tier)[0].kind, title=_HELLO, c=(), b=(), probe=_HELLO)
        seen = await self.observe(tier, greeting)
        if seen.refused:
            return f"no program can be run: {seen.refused}: {seen.message}"
        if seen.answer is None or not seen.answer.escaped:
            return f"{self.python.program} does not run inside (exit code {seen.exit_code}, signal {seen.signal})"
        return ""

    async def observe(self, tier: SandboxTier, attempt: Attempt) -> Observed:
        """Make one attempt against fresh bait and collect what it left."""
        await asyncio.to_thread(self.bait.reset, attempt.bait, self.probes)
        names = self.bait.names()
        profile, command = self._profile(tier, attempt), self._command(attempt, names)
        knocked = False

        def on_output(_stream: str, chunk: bytes) -> None:
            nonlocal knocked
            if b'"ready"' in chunk:
                knocked = self.bait.knock()

        sink = on_output if attempt.probe == _LISTENS else None
        error: PalyraError | None = None
        outcome: ProcessOutcome | None
        try:
            outcome = await self.runner.run_constrained_process(profile, command, sink=sink)
        except PalyraError as raised:
            error, outcome = raised, getattr(raised, "outcome", None)
        await self._settle()
        output = b"" if outcome is None else outcome.stdout + outcome.stderr
        traces = await asyncio.to_thread(self.bait.traces, output)
        if knocked:
            traces = (*traces, "the host reached a listener inside")
        return Observed(
            traces=traces,
            answer=None if outcome is None else _answer(outcome.stdout),
            refused="" if error is None else error.code,
            message="" if error is None else error.message,
            exit_code=None if outcome is None else outcome.exit_code,
            signal=None if outcome is None else outcome.signal,
            held=None if outcome is None else _find_held(outcome),
        )

    async def _settle(self) -> None:
        """Look for left processes a few times: no notification tells when one of another tree is gone."""
        for _ in range(SETTLE_LOOKS):
            if not any(find_survivors(self.bait.comm)):
                return
            await asyncio.sleep(SETTLE_STEP_SECONDS)

    def _profile(self, tier: SandboxTier, attempt: Attempt) -> SandboxProfile:
        return SandboxProfile(
            workspace_root=self.bait.workspace,
            tier=tier,
            protected_names=self.protected,
            limits=msgspec.convert({"timeout_ms": ATTEMPT_TIMEOUT_MS, **attempt.limits}, SandboxLimits),
            allow_interpreters=not attempt.command,
            appearing_protected=NewProtectedPolicy.MOVE_ASIDE,
            tool_roots=self.python.roots,
        )

    def _command(self, attempt: Attempt, names: dict[str, Any]) -> ProcessCommand:
        env = tuple((name, str(fill_names(value, names))) for name, value in attempt.env)
        if attempt.command:
            program, *args = (str(fill_names(word, names)) for word in attempt.command)
            return ProcessCommand(command=program, args=tuple(args), env=env)
        order = {
            **fill_names(attempt.arguments, names),
            "probe": attempt.probe,
            "comm": self.bait.comm,
            "calls": self.calls,
        }
        return ProcessCommand(
            command=self.python.program,
            args=("-I", "-S", f"{self.bait.workspace}/probes/start.py"),
            env=env,
            stdin=json.dumps(order).encode(),
        )


def _find_held(outcome: ProcessOutcome) -> frozenset[Layer]:
    """Return the layers in force. The protected names were, if they found what a program planted."""
    held = frozenset(line.layer for line in outcome.receipt.lines if line.held)
    return held | {Layer.PROTECTED_NAMES} if outcome.changes else held


def _answer(output: bytes) -> Answer | None:
    """Read the last line that is an answer. A probe that was flooded out or killed has none."""
    for line in reversed(output[-8192:].splitlines()):
        try:
            return msgspec.json.decode(line, type=Answer)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return None


@contextmanager
def _folder(base: str | None) -> Iterator[str]:
    folder = os.path.realpath(tempfile.mkdtemp(prefix="palyra-attack-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
