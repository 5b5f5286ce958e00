"""The console's wiring: the services of a gateway that its pages use."""

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from palyra.daemon.gateway_wiring import Gateway

CANDIDATES = "skill-candidates"
PUBLIC_KEY = "signing.pub"


def build_console(gateway: "Gateway") -> "ASGIApp":
    """Build the console's application. Call it in a thread: it loads templates."""
    from palyra.doctor.checks import machine_probes, workspaces
    from palyra.doctor.report import examine
    from palyra.journal.checkpoint import CHECKPOINT_NAME
    from palyra.server.console.app import create_console_app
    from palyra.server.console.services import CHANNEL, CandidateService, Console, JournalService

    def examine_machine() -> list[dict[str, Any]]:
        settings = gateway.settings
        probes = machine_probes(
            gateway.state.root,
            gateway.policy.folder,
            gateway.directory,
            settings.browser,
            named=bool(settings.policy.dir),
        )
        assigned = gateway.broker.config.workspaces
        report = examine((*probes, workspaces(lambda: assigned)) if assigned.named else probes)
        checks: list[dict[str, Any]] = msgspec.to_builtins(report.checks)
        return checks

    console = Console(
        service=gateway.service.with_channel(CHANNEL),
        policy=gateway.policy,
        journal=JournalService(gateway.store, gateway.state.path(PUBLIC_KEY), gateway.state.path(CHECKPOINT_NAME)),
        candidates=CandidateService(gateway.state.path(CANDIDATES), gateway.settings.skills),
        examine_machine=examine_machine,
        egress_rules=tuple(gateway.settings.egress.allowed_hosts),
        request_rules=tuple((", ".join(rule.hosts), str(rule)) for rule in gateway.settings.egress.request_rules),
    )
    return create_console_app(console)
