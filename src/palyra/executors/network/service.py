"""The egress of one daemon: one judge, one proxy, and a listener for each sandboxed call that may reach hosts."""

import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from palyra.egress.domain.credential import bindings_for
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.judge import EgressProxyPolicyService
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import ProxyLimits
from palyra.egress.policy_judge import GrantedSecrets, GrantsInUse, PolicedEgress, RevealsSecrets
from palyra.egress.protocols.dns import SyntheticNames
from palyra.egress.proxy.dial import Upstream
from palyra.egress.proxy.resolver import OwnAddresses, SystemResolver
from palyra.egress.proxy.run_authority import RunAuthority
from palyra.egress.proxy.server import CallListener, EgressProxy, ListeningSocket
from palyra.egress.proxy.termination import CredentialTermination
from palyra.egress.settings import EgressSettings
from palyra.egress.tls import client_context
from palyra.executors.network.grant import call_of, grant_of
from palyra.executors.network.journal import JournalObserver
from palyra.pipeline.catalog import Catalog
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.call import ExecutionPlan
from palyra.policy.decision import Decision, Outcome, PolicyPort
from palyra.policy.request import EntityDirectory
from palyra.sandbox.domain.network import NetworkUsage, build_ca_environment
from palyra.sandbox.domain.profile import EXTRA_FILES_ROOT, SandboxProfile
from palyra.sandbox.network.call_network import OpenedSockets

# Where programs in the sandbox find the authorities they may trust when a host has a credential binding.
BUNDLE_PATH: Final = f"{EXTRA_FILES_ROOT}/ca-certificates.crt"
# Where Debian keeps them, for a Python that was built to look elsewhere.
_DEBIAN_BUNDLE: Final = "/etc/ssl/certs/ca-certificates.crt"
# What is spoken at a port, for the question before a connection is there.
_SCHEMES: Final = {80: "http", 443: "https"}


class NetworkService:
    def __init__(
        self,
        settings: EgressSettings,
        *,
        policy: PolicyPort,
        directory: EntityDirectory,
        catalog: Catalog,
        secrets: RevealsSecrets,
        observer: JournalObserver,
    ) -> None:
        self.settings = settings
        self.observer = observer
        self.directory = directory
        self._catalog = catalog
        # Executors that dial without a listener. Each judges its open connections again and returns the number it cut.
        self.reconsidering: list[Callable[[EgressProxyPolicyService], int]] = []
        self.grants = GrantsInUse()
        self.secrets = GrantedSecrets(secrets, self.grants)
        self.service = PolicedEgress(OwnAddresses(), policy, directory, self.grants)
        self.resolver = SystemResolver(settings.static_hosts)
        self.termination = CredentialTermination(self.secrets, trust=self.trust, now=_now)
        self.proxy = EgressProxy(
            self.service,
            self.resolver,
            observer,
            limits=ProxyLimits(idle_seconds=settings.idle_seconds),
            upstream=Upstream.parse(settings.upstream) if settings.upstream else None,
            termination=self.termination,
        )

    def trust(self) -> ssl.SSLContext:
        """Trust the system's authorities and the operator's own, as ``http.fetch`` does."""
        own = self.settings.ca_file
        return client_context(str(Path(own).expanduser()) if own else "")

    def grant_for(self, plan: ExecutionPlan, hosts: tuple[str, ...]) -> EgressGrant:
        rules = parse_rules(hosts)
        return grant_of(plan, self.settings, rules, bindings_for(self.settings.bindings, rules))

    def decide_hosts(self, plan: ExecutionPlan, hosts: tuple[str, ...]) -> dict[str, Decision]:
        """Put ``egress.connect`` to policy for every host that is named in full, before the call connects.

        A rule for several ports is denied only if each port is. Policy decides each connection as well.
        """
        grant = self.grant_for(plan, hosts)
        # The call's own grant may be in use, and stays entered.
        grant = msgspec.structs.replace(grant, grant_id=f"{grant.grant_id}/decide")
        self.enter(plan, grant)
        try:
            return {
                str(rule): min(
                    (
                        self.service.decide(grant, Target(_SCHEMES.get(port, "tcp"), rule.host, port))
                        for port in rule.ports
                    ),
                    key=lambda decision: decision.outcome is not Outcome.ALLOW,
                )
                for rule in grant.rules
                if not rule.below
            }
        finally:
            self.grants.leave(grant.grant_id)

    def enter(self, plan: ExecutionPlan, grant: EgressGrant) -> None:
        """Let policy and vault resolve the grant to its call, until ``leave``."""
        spec = self._catalog.entry(plan.tool).spec
        call = call_of(plan, spec, self.directory, touched=spec.touches(plan.arguments))
        self.grants.enter(grant.grant_id, call)

    def leave(self, grant: EgressGrant) -> None:
        self.grants.leave(grant.grant_id)
        self.termination.forget(grant.grant_id)
        self.observer.forget(grant.grant_id)

    def policy_changed(self) -> int:
        """Judge every open connection again. Return the number of those that were cut."""
        return self.proxy.reconsider(lambda grant: grant) + sum(each(self.service) for each in self.reconsidering)

    def close(self) -> None:
        self.proxy.close()
        self.resolver.close()

    def prepare_listener(
        self, plan: ExecutionPlan, profile: SandboxProfile
    ) -> tuple[SandboxProfile, "SandboxListener | None"]:
        """Prepare the listener of a sandboxed call and adapt its profile. Without allowed hosts it has none."""
        if not profile.reaches_hosts:
            return profile, None
        grant = self.grant_for(plan, profile.allowed_egress_hosts)
        listener = SandboxListener(self, plan, grant)
        return listener.add_authorities(profile), listener


class SandboxListener:
    """The egress listener of one call, on sockets in the network of its sandbox."""

    def __init__(self, network: NetworkService, plan: ExecutionPlan, grant: EgressGrant) -> None:
        self._network = network
        self._plan = plan
        self._grant = grant
        self._listener: CallListener | None = None
        self._closed = False
        # Held until the sockets are open: a call that fails before leaves no key behind.
        self._authority: RunAuthority | None = None

    @property
    def most_bytes(self) -> int:
        return self._grant.max_bytes

    def add_authorities(self, profile: SandboxProfile) -> SandboxProfile:
        """Add the run's own certificate authority to the sandbox if the proxy ends TLS for a host."""
        if not self._grant.read_hosts:
            return profile
        self._authority = self._network.termination.make_authority(self._grant)
        bundle = self._authority.bundle(_system_bundle(self._network.settings.ca_file))
        taken = dict(profile.env)
        added = tuple((name, value) for name, value in build_ca_environment(BUNDLE_PATH) if name not in taken)
        return msgspec.structs.replace(
            profile, extra_files=(*profile.extra_files, (BUNDLE_PATH, bundle)), env=(*profile.env, *added)
        )

    async def serve(self, sockets: OpenedSockets) -> "SandboxListener":
        listening = [ListeningSocket(kind=each.plan.kind.value, socket=each.socket) for each in sockets]
        self._network.enter(self._plan, self._grant)
        try:
            if self._authority is not None:
                self._network.termination.adopt(self._grant, self._authority)
            names = SyntheticNames(self._grant.exact_names())
            self._listener = self._network.proxy.open_listener(self._grant, listening, names)
            # A background program goes on after its call is charged: it is charged the most until the listener closes.
            self._plan.usage.note(BudgetKind.EGRESS_BYTES, self.most_bytes)
        except BaseException:
            self._network.leave(self._grant)
            raise
        return self

    async def close(self) -> NetworkUsage:
        assert self._listener is not None
        usage = self._listener.close()
        moved = usage.bytes_up + usage.bytes_down
        # A call that is charged already paid the most, which was noted when the listener opened.
        unused = self.most_bytes - moved if self._plan.usage.is_taken and not self._closed else 0
        self._closed = True
        self._plan.usage.note(BudgetKind.EGRESS_BYTES, moved)
        try:
            # The journal has the refusals and the end of each tunnel before the end of the call.
            await self._listener.wait_until_empty()
            await self._network.observer.flush()
            if unused:
                await self._network.observer.return_budget(self._grant, unused)
        finally:
            self._network.leave(self._grant)
        return NetworkUsage(
            connections=usage.connections,
            bytes_up=usage.bytes_up,
            bytes_down=usage.bytes_down,
            credential_uses=usage.credential_uses,
            refused=usage.refused,
            violations=usage.violations,
            refusals=tuple(msgspec.to_builtins(refusal) for refusal in usage.refusals),
        )


def _system_bundle(ca_file: str) -> bytes:
    paths = ssl.get_default_verify_paths()
    found = [Path(path) for path in (paths.cafile, _DEBIAN_BUNDLE) if path and Path(path).is_file()]
    bundle = found[0].read_bytes() if found else b""
    if ca_file:
        bundle += b"\n" + Path(ca_file).expanduser().read_bytes()
    return bundle


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
