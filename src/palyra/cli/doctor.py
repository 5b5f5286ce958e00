"""``palyra doctor``: what this machine can enforce."""

from typing import TYPE_CHECKING, Final

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from palyra.doctor.report import Finding, Probe, Report

DIGEST_CHARS_SHOWN: Final = 16


@click.command()
@json_option
@pass_invocation
def doctor(invocation: Invocation) -> None:
    """Show what this machine can enforce.

    Exits with 6 when something is missing that Palyra needs to work.
    """
    from palyra.doctor.report import examine

    with invocation.output.working("Looking at this machine"):
        report = examine(probes(invocation))
    if report.unmet:
        _show(invocation, report)
        report.raise_if_not_ready()
    invocation.output.data(report, lambda _: _show(invocation, report))


def probes(invocation: Invocation) -> "tuple[Probe, ...]":
    """The table of questions. What is not required yet belongs to tiers that say so themselves when they start."""
    from palyra.doctor import host, kernel
    from palyra.doctor.report import Probe

    state = invocation.state_path
    rows = (
        ("python", "runs Palyra", True, host.python),
        ("state directory", "keeps keys, tokens and the journal private", True, lambda: host.state_directory(state)),
        ("durable writes", "make a record outlive a power cut", True, lambda: host.durable_writes(state)),
        ("sqlite", "holds the journal", True, lambda: host.sqlite(state)),
        ("clock", "dates records and ends approvals", True, lambda: host.clock(state)),
        ("policy bundle", "decides every call", True, lambda: policy_bundle(invocation)),
        ("openat2", "keeps the file tools in their workspace", True, kernel.openat2),
        ("landlock", "limits files and TCP without privileges", False, kernel.landlock),
        ("seccomp", "limits system calls", False, kernel.seccomp),
        ("user namespaces", "isolate processes without root", False, kernel.user_namespaces),
        ("bubblewrap", "builds Tier C sandboxes", False, host.bubblewrap),
        ("cgroups", "limit whole process trees", False, kernel.cgroups),
        ("daemon", "answers calls", False, lambda: running_daemon(invocation)),
    )
    return tuple(Probe(name=name, purpose=purpose, required=req, look=look) for name, purpose, req, look in rows)


def running_daemon(invocation: Invocation) -> "Finding":
    """The daemon of this state directory, wherever it listens."""
    from palyra.client.address import ServerAddress
    from palyra.client.local import find_daemon
    from palyra.doctor import daemon_http
    from palyra.doctor.report import warn

    try:
        address = ServerAddress.parse(find_daemon(invocation.state_path).url)
    except PalyraError as error:
        return warn(error.message, error.hint)
    return daemon_http.daemon(address.host, address.port)


def policy_bundle(invocation: Invocation) -> "Finding":
    """Loads the bundle that a daemon started now would load."""
    from palyra.daemons.entity_directory import directory_of
    from palyra.doctor.report import missing, ok
    from palyra.policy.cedar import CedarEngine
    from palyra.policy.loader import load_bundle

    settings = invocation.settings
    folder = invocation.locations.policy_dir(settings)
    try:
        digest = CedarEngine(load_bundle(folder, directory_of(settings))).bundle_digest
    except PalyraError as error:
        return missing(error.message, error.hint)
    return ok(f"valid, with the files of {folder}, digest {digest[:DIGEST_CHARS_SHOWN]}")


def _show(invocation: Invocation, report: "Report") -> None:
    output = invocation.output
    rows = [
        (check.name, f"{check.status} (required)" if check in report.unmet else check.status, check.evidence)
        for check in report.checks
    ]
    output.table(("check", "result", "evidence"), rows)
    fixes = [(check.name, check.fix) for check in report.checks if check.fix]
    if fixes:
        output.text("")
        output.table(("to improve", "do this"), fixes)
