"""The result of one probe, and the report that a list of them makes."""

from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from palyra.errors import Unavailable


class NotReady(Unavailable):
    code = "doctor.not_ready"
    hint = "follow the fix beside each missing check, then run `palyra doctor` again"


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    MISSING = "missing"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe. ``evidence`` is a fact that was observed, ``fix`` what a person can do about it."""

    status: Status
    evidence: str
    fix: str = ""


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """One question to the machine. ``required`` says that Palyra as built now does not work without it."""

    name: str
    purpose: str
    required: bool
    look: Callable[[], Finding]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    purpose: str
    required: bool
    status: Status
    evidence: str
    fix: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    checks: tuple[Check, ...]

    @property
    def unmet(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.required and check.status is Status.MISSING)

    def raise_if_not_ready(self) -> None:
        if self.unmet:
            names = ", ".join(check.name for check in self.unmet)
            raise NotReady(f"this machine lacks what Palyra needs: {names}", checks=msgspec.to_builtins(self.checks))


def ok(evidence: str) -> Finding:
    return Finding(status=Status.OK, evidence=evidence)


def warn(evidence: str, fix: str) -> Finding:
    return Finding(status=Status.WARN, evidence=evidence, fix=fix)


def missing(evidence: str, fix: str) -> Finding:
    return Finding(status=Status.MISSING, evidence=evidence, fix=fix)


def examine(probes: Sequence[Probe]) -> Report:
    """Run every probe. One that breaks counts as missing, with the error as its evidence."""
    return Report(checks=tuple(_ask(probe) for probe in probes))


def _ask(probe: Probe) -> Check:
    try:
        found = probe.look()
    except Exception as error:
        found = missing(f"the probe itself broke: {type(error).__name__}: {error}", "report this")
    return Check(
        name=probe.name,
        purpose=probe.purpose,
        required=probe.required,
        status=found.status,
        evidence=found.evidence,
        fix=found.fix,
    )
