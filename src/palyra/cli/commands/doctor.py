"""``palyra doctor``: what this machine can enforce, and with ``--attack`` whether it does."""

import asyncio
from typing import TYPE_CHECKING

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.doctor import checks
from palyra.doctor.report import Finding, Probe, Report, Status, examine, warn
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from palyra.doctor.attacks.attempt import Attempt
    from palyra.doctor.attacks.verdict import AttackReport, Verdict


@click.command()
@click.option(
    "--attack", is_flag=True, help="Try to break out of the sandbox on this machine, and list what was tried."
)
@click.option("--tier", type=click.Choice(["b", "c"]), help="With --attack: only this tier.")
@pass_invocation
def doctor(invocation: Invocation, attack: bool, tier: str | None) -> None:
    """Show what this machine can enforce.

    Exits with 6 when something is missing that Palyra needs to work. With --attack, makes escape attempts inside the
    real sandbox and exits with 1 when one got through that the tier promises to stop.
    """
    if tier and not attack:
        raise click.UsageError("--tier goes with --attack")
    if attack:
        _attack(invocation, tier)
        return
    with invocation.output.working("Looking at this machine"):
        report = examine(probes(invocation))
    if report.unmet:
        _show(invocation, report)
        report.raise_if_not_ready()
    invocation.output.data(report, lambda _: _show(invocation, report))


def probes(invocation: Invocation) -> tuple[Probe, ...]:
    """List the checks of every machine, and whether a daemon answers."""
    from palyra.daemon.pipeline_wiring import check_workspaces, directory_of
    from palyra.pipeline.domain.workspaces import EVERYBODY

    settings, state = invocation.settings, invocation.state_path
    directory = directory_of(settings)
    daemon = Probe(name="daemon", purpose="answers calls", required=False, look=lambda: running_daemon(invocation))
    policies = invocation.locations.policy_dir(settings.policy.dir)
    found = [*checks.machine_probes(state, policies, directory, settings.browser, named=bool(settings.policy.dir))]
    if settings.workspaces or settings.workspace.who != EVERYBODY:
        config = invocation.config_path
        found.append(checks.workspaces(lambda: check_workspaces(settings, state, policies, directory, config)))
    return (*found, daemon)


def running_daemon(invocation: Invocation) -> Finding:
    """Check the daemon of this state directory at its own address."""
    from palyra.client.address import ServerAddress, find_daemon, started_before

    try:
        address = ServerAddress.parse(find_daemon(invocation.state_path).url)
    except PalyraError as error:
        return warn(error.message, error.hint)
    found = checks.daemon(address.host, address.port)
    if found.status is Status.OK and started_before(invocation.state_path, invocation.config_path):
        return warn(
            f"{found.evidence}, and started before {invocation.config_path} was changed",
            "start it again: settings are read at the start",
        )
    return found


def _show(invocation: Invocation, report: Report) -> None:
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


def _attack(invocation: Invocation, tier: str | None) -> None:
    from palyra.doctor.attacks.runner import attack
    from palyra.sandbox.domain.profile import SandboxTier

    tiers = (SandboxTier(tier),) if tier else (SandboxTier.C, SandboxTier.B)
    protected = tuple(invocation.settings.workspace.protected)
    begun: set[tuple[str, str]] = set()

    def progress(where: "SandboxTier", attempt: "Attempt", number: int, total: int) -> None:
        if (where, attempt.kind) not in begun:
            begun.add((where, attempt.kind))
            invocation.output.note(f"tier {where}: attempt {number} of {total}, {attempt.kind}")

    report = asyncio.run(attack(tiers, protected_names=protected, progress=progress))
    if report.escapes or report.idle:
        _show_attack(invocation, report)
        report.raise_if_escaped()
    invocation.output.data(report.as_dict(), lambda _: _show_attack(invocation, report))


def _show_attack(invocation: Invocation, report: "AttackReport") -> None:
    from palyra.doctor.attacks.verdict import Result

    def describe_result(verdict: "Verdict") -> str:
        only_reported = verdict.result is Result.NOT_BLOCKED and not verdict.promised
        return "not blocked (not promised)" if only_reported else verdict.result

    output = invocation.output
    for kind in dict.fromkeys(each.kind for each in report.verdicts):
        rows = [
            (each.title, each.tier, describe_result(each), each.layer if each.promised else "", each.evidence)
            for each in report.verdicts
            if each.kind is kind
        ]
        output.text(kind.capitalize())
        output.table(("attempt", "tier", "result", "layer", "evidence"), rows)
        output.text("")
    output.text(report.summary())
