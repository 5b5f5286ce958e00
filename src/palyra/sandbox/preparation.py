"""What one call holds from before its start until after its end: got ready by one look, and given back however it ends.

A look at a small workspace keeps the event loop for less time than a change of threads takes; everything else goes to
a thread. Where a sandbox must be built for the call, the command is checked while it is built: what is built depends on
the profile alone, and nothing of the command is in it before it passed.
"""

import asyncio
import contextlib
import os
import tempfile
import time

import msgspec

from palyra.sandbox import limits
from palyra.sandbox.domain.facts import Facts
from palyra.sandbox.domain.process_run import ProcessCommand
from palyra.sandbox.domain.profile import Layer, Receipt, ReceiptLine, SandboxProfile, SandboxTier
from palyra.sandbox.guards.checks import Checked, GuardHost, check_before_spawn
from palyra.sandbox.launch.built_sandbox import WaitingSandbox
from palyra.sandbox.launch.prewarm import BuiltAhead, filter_of
from palyra.sandbox.layers.bubblewrap import gather_host
from palyra.sandbox.layers.cgroup import CgroupPool, Group
from palyra.sandbox.layers.protected_mounts import TooManyForNow, gather_workspace
from palyra.sandbox.layers.workspace_scan import WorkspaceScan, remove_tree
from palyra.sandbox.network.call_network import SandboxNetwork
from palyra.sandbox.quick_look import QuickLook
from palyra.sandbox.running_process import OutputCapture, Running
from palyra.sandbox.verify.protected_changes import AppearingReport, look_again


class Call(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was asked, and what it is judged by."""

    profile: SandboxProfile
    command: ProcessCommand
    host: GuardHost
    network: SandboxNetwork

    def check(self) -> Checked:
        return check_before_spawn(self.profile, self.command, self.host, served=self.network.served)


class Prepared(msgspec.Struct, kw_only=True, eq=False):
    """What a call holds. ``checked`` is None as long as that is still to be done, in ``CallPreparation.checked``."""

    call: Call
    group: Group
    checked: Checked | None = None
    home: str = ""
    facts: Facts | None = None
    before: WorkspaceScan | None = None
    # One that was built ahead and is just what would be built now.
    sandbox: WaitingSandbox | None = None
    # Whether it was all looked at without a change of threads, and can be again.
    quick: bool = False
    capture: OutputCapture | None = None

    def captured(self, capture: OutputCapture) -> OutputCapture:
        """From now on it is closed with the rest."""
        self.capture = capture
        return capture


class CallPreparation:
    """One per event loop. ``scratch`` is where calls get their private folders, and where names are moved aside to."""

    def __init__(self, cgroups: CgroupPool, ahead: BuiltAhead, scratch: str) -> None:
        self._cgroups = cgroups
        self._ahead = ahead
        self._scratch = scratch
        self._quick = QuickLook()

    async def prepare(self, call: Call) -> Prepared:
        """Raises the refusal of the call, if it was checked here, and then holds nothing."""
        profile = call.profile
        warm = self._ahead.take(profile)
        if self._quick.expects(profile.workspace_root, call.command):
            with contextlib.suppress(TooManyForNow):
                return self._at_once(call, warm)
        preparing = asyncio.ensure_future(asyncio.to_thread(self._take, call, warm))
        prepared: Prepared | None = None
        try:
            prepared = await asyncio.shield(preparing)
        except asyncio.CancelledError:
            # The thread goes on, and nobody else would give back what it takes.
            await asyncio.wait([preparing])
            if preparing.exception() is None:
                await asyncio.shield(self.finish(preparing.result(), None))
                warm = None if preparing.result().sandbox is warm else warm
            raise
        finally:
            used = None if prepared is None else prepared.sandbox
            self._ahead.not_used(profile, warm, used, refused=prepared is None)
        return prepared

    def checked(self, prepared: Prepared) -> Checked:
        """The check of a call that was not checked yet; quick, or it would have been."""
        if prepared.checked is None:
            since = time.monotonic()
            prepared.checked = prepared.call.check()
            self._quick.learn(prepared.call.profile.workspace_root, 0, time.monotonic() - since)
        return prepared.checked

    def _at_once(self, call: Call, warm: WaitingSandbox | None) -> Prepared:
        try:
            # Without a sandbox one must be built, and there is time for the check meanwhile.
            later = warm is None and self._ahead.builds_at_once(call.profile)
            prepared = self._take(call, warm, most=limits.QUICK_ENTRIES, check_later=later)
        except TooManyForNow:
            raise
        except BaseException:
            self._ahead.not_used(call.profile, warm, None, refused=True)
            raise
        self._ahead.not_used(call.profile, warm, prepared.sandbox, refused=False)
        prepared.quick = True
        return prepared

    def _take(
        self, call: Call, warm: WaitingSandbox | None, most: int | None = None, *, check_later: bool = False
    ) -> Prepared:
        """All that must be looked at and taken before the start, on one thread: a change of threads costs as much."""
        since = time.monotonic()
        profile = call.profile
        checked = None if check_later else call.check()
        if profile.tier is SandboxTier.B:
            home = tempfile.mkdtemp(prefix="call-", dir=self._scratch)
            group = self._cgroups.take(profile.limits)
            self._quick.learn(profile.workspace_root, 0, time.monotonic() - since)
            return Prepared(call=call, checked=checked, group=group, home=home)
        workspace, before = gather_workspace(profile, most=most)
        self._quick.learn(profile.workspace_root, before.entries, time.monotonic() - since)
        facts = Facts(host=gather_host(), workspace=workspace, seccomp=filter_of(profile))
        if warm is not None and warm.serves(facts):
            group = warm.group
        else:
            warm, group = None, self._cgroups.take(profile.limits)
        return Prepared(call=call, checked=checked, group=group, facts=facts, before=before, sandbox=warm)

    def finish_at_once(self, prepared: Prepared, running: Running) -> bool:
        """Gives everything back, and names what appeared, if that takes no time: the program has ended, its door never
        was opened, and its workspace is small. False where ``finish`` must do it; then nothing was done."""
        ended, network = running.child.ended, prepared.call.network
        if not (prepared.quick and ended and network.never_opened and prepared.group.empty()):
            return False
        if prepared.sandbox is not None and running.child is not prepared.sandbox.child:
            return False
        if not _removed(prepared.home):
            return False
        try:
            self._clean(prepared, running, most=limits.QUICK_ENTRIES, empty=True)
        except TooManyForNow:
            return False
        except BaseException:
            self._let_go(prepared, running)
            raise
        self._let_go(prepared, running)
        return True

    def _let_go(self, prepared: Prepared, running: Running | None) -> None:
        if prepared.capture is not None:
            prepared.capture.close()
        if running is not None and running.sandbox is not None:
            self._ahead.used(prepared.call.profile, running.sandbox)

    async def finish(self, prepared: Prepared, running: Running | None) -> None:
        """The same for every call, however it ended. To be shielded by who may be cancelled."""
        if prepared.capture is not None:
            prepared.capture.close()
        if prepared.sandbox is not None and (running is None or running.child is not prepared.sandbox.child):
            await prepared.sandbox.end()
        receipt, usage = await prepared.call.network.close(running.receipt if running is not None else Receipt())
        if running is not None:
            running.receipt, running.egress = receipt, usage
        try:
            await asyncio.to_thread(self._clean, prepared, running)
        finally:
            self._let_go(prepared, running)

    def _clean(
        self, prepared: Prepared, running: Running | None, most: int | None = None, *, empty: bool = False
    ) -> None:
        group, profile = prepared.group, prepared.call.profile
        try:
            if running is not None:
                running.out_of_memory = group.out_of_memory()
                if prepared.before is None or profile.read_only:
                    running.receipt = running.receipt.with_lines(group.receipt())
                else:
                    self.look_again(profile, prepared.before, running, most, also=group.receipt()).refuse()
        except TooManyForNow:
            # Nothing was given back: the caller comes again, with time.
            raise
        except BaseException:
            _give_back(prepared, empty=empty)
            raise
        _give_back(prepared, empty=empty)

    def look_again(
        self,
        profile: SandboxProfile,
        before: WorkspaceScan,
        running: Running,
        most: int | None = None,
        *,
        also: tuple[ReceiptLine, ...] = (),
    ) -> AppearingReport:
        """What appeared under a protected name while the program ran is named in the receipt, and dealt with."""
        made: list[str] = []

        def aside() -> str:
            made.append(tempfile.mkdtemp(prefix="aside-", dir=self._scratch))
            return made[0]

        report = look_again(profile, before, aside=aside, most=most)
        for place in made:
            with contextlib.suppress(OSError):
                # Stays where something was moved into it.
                os.rmdir(place)
        line = running.receipt.line(Layer.PROTECTED_NAMES)
        running.receipt = running.receipt.with_lines((*also, report.line(line)))
        return report


def _give_back(prepared: Prepared, *, empty: bool) -> None:
    prepared.group.release(empty=empty)
    if prepared.home:
        remove_tree(prepared.home)


def _removed(home: str) -> bool:
    """Takes away an empty folder. One that is not takes who knows how long."""
    if home:
        try:
            os.rmdir(home)
        except OSError:
            return False
    return True
