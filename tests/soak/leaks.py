"""What must not be left: compared at rest before and after, and looked for when everything has been stopped."""

import os
from contextlib import suppress
from pathlib import Path

from fakes.processes import descendants
from soak.judge import Verdict
from soak.pace import GaveUp
from soak.stack import Stack
from soak.watch import Holding, Sample, Watch, words_of

# Kept connections, executors that have grown to their size: no more than this, however long the soak was.
_MORE_DESCRIPTORS = 12
_MORE_THREADS = 16
# Sandboxes that wait for the next call of their kind: the daemon and each worker keep some of every kind they saw.
_MORE_PROCESSES = 40
_MORE_GROUPS = 160
# Growth of the daemon in its last life, between a quarter and the end of it, beside a history that grows all the time.
_MORE_BYTES = 48 * 1024 * 1024
_LEAST_SAMPLES = 20
_REST_SECONDS = 90.0
# Where the state directory has one entry for each thing that lives.
_PER_LIFE = ("browser/sessions", "browser/processes")


def holds_no_more(watch: Watch, before: Holding, stack: Stack) -> tuple[Verdict, Holding]:
    """Waits until what was in use has been given back."""

    def problems() -> list[str]:
        now, found = watch.holding(), []
        for kind, count in now.descriptors.items():
            if kind != "cgroup" and count > before.descriptors[kind] + _MORE_DESCRIPTORS:
                found.append(f"{count} descriptors of the kind {kind}, {before.descriptors[kind]} before")
        for name, count in now.processes.items():
            if count > before.processes[name] + _MORE_PROCESSES:
                found.append(f"{count} processes {name}, {before.processes[name]} before")
        if now.threads > before.threads + _MORE_THREADS:
            found.append(f"{now.threads} threads, {before.threads} before")
        if now.listeners > before.listeners:
            found.append(f"{now.listeners} listeners, {before.listeners} before")
        if len(now.temporary) > len(before.temporary):
            found.append(f"temporary: {now.temporary}, before {before.temporary}")
        if now.groups > before.groups + _MORE_GROUPS:
            found.append(f"{now.groups} control groups, {before.groups} before")
        if now.mounts:
            found.append(f"mounted: {now.mounts}")
        return found

    with suppress(GaveUp):
        stack.pace.wait_for(lambda: not problems(), "rest", _REST_SECONDS, every=1.0)
    after = watch.holding()
    held = (
        f"{sum(after.descriptors.values())} descriptors",
        f"{after.threads} threads",
        f"{after.processes.total()} processes",
    )
    note = ", ".join(held)
    return Verdict(what="at rest the stack holds no more than before", problems=problems(), note=note), after


def nothing_is_left(stack: Stack) -> Verdict:
    """After everything was stopped in order."""
    ours = {os.getpid(), *(one.process.pid for one in (stack.networks.near, *stack.networks.far))}

    def processes() -> list[str]:
        return [f"process {pid}: {words_of(pid)[:150]}" for pid in descendants(stack.enclosure.first) - ours]

    with suppress(GaveUp):
        stack.pace.wait_for(lambda: not processes(), "the last process ends", 30.0, every=0.5)
    enclosure, state = stack.enclosure, stack.home.place.state
    problems = processes()
    problems += [f"temporary folder {path.name}" for path in enclosure.temporary.iterdir()]
    problems += [f"control group {path}" for path in enclosure.left_groups()]
    problems += [f"mount {path}" for path in enclosure.mounted() - enclosure.mounts]
    for folder in _PER_LIFE:
        problems += [f"state: {folder}/{name}" for name in _names(state / folder)]
    for path in state.rglob("*"):
        if path.name.endswith((".tmp", ".part", ".partial")) or path.name.startswith(".tmp"):
            problems.append(f"state: unfinished {path.relative_to(state)}")
    for machine in stack.machines:
        problems += [f"machine {machine.number}: {path}" for path in _scratch(machine.place.state)]
    return Verdict(what="no process, folder, control group or mount is left", problems=problems)


def no_listener_is_left(watch: Watch) -> Verdict:
    count = watch.listeners()
    return Verdict(what="nothing listens any more", problems=[f"{count} sockets listen"] if count else [])


def memory_is_bounded(samples: list[Sample]) -> Verdict:
    """Of the last life, which is the longest."""
    what = "the daemon's memory is bounded"
    if not samples:
        return Verdict(what=what, problems=["it was never looked at"])
    last = max(sample.life for sample in samples)
    return _bounded(what, [sample.daemon_bytes for sample in samples if sample.life == last and sample.daemon_bytes])


def memory_of_workers_is_bounded(samples: list[Sample]) -> Verdict:
    """Of the one that lived longest: the others were killed sooner."""
    lives: dict[int, list[int]] = {}
    for sample in samples:
        for pid, held in sample.workers.items():
            lives.setdefault(pid, []).append(held)
    return _bounded("a worker's memory is bounded", max(lives.values(), key=len, default=[]))


def _bounded(what: str, lived: list[int]) -> Verdict:
    if len(lived) < _LEAST_SAMPLES:
        return Verdict(what=what, problems=[], note=f"only {len(lived)} samples: not judged")
    tenth = max(1, len(lived) // 10)
    early = _middle(lived[len(lived) // 4 : len(lived) // 4 + tenth])
    late = _middle(lived[-tenth:])
    note = f"{early / 2**20:.0f} MiB after a quarter of its longest life, {late / 2**20:.0f} MiB at the end"
    grown = late - early
    problems = [f"it grew by {grown / 2**20:.0f} MiB"] if grown > _MORE_BYTES else []
    return Verdict(what=what, problems=problems, note=note)


def _middle(values: list[int]) -> int:
    return sorted(values)[len(values) // 2]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def _scratch(state: Path) -> list[str]:
    """Folders of leases that a worker made and did not remove."""
    found = []
    for folder in ("worker/scratch", "scratch", "worker/leases"):
        found += [f"{folder}/{name}" for name in _names(state / folder)]
    return found
