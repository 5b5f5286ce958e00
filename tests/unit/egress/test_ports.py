from palyra.egress.domain.events import EgressEvent, EgressObserver, Resolver, SecretSource
from palyra.egress.domain.grant import EgressGrant
from palyra.egress.domain.target import Target
from palyra.egress.proxy.resolver import SystemResolver
from palyra.secret import Secret


class _Everything:
    async def resolve(self, host: str) -> tuple[str, ...]:
        return (host,)

    async def reveal(self, grant: EgressGrant, secret_ref: str, target: Target) -> Secret:
        return Secret(secret_ref)

    def observe(self, grant: EgressGrant, event: EgressEvent) -> None:
        self.last = (grant, event)


def test_a_plain_object_fits_every_port() -> None:
    both = _Everything()
    resolvers: tuple[Resolver, ...] = (both, SystemResolver({}))
    source: SecretSource = both
    observer: EgressObserver = both
    assert len(resolvers) == 2 and (source, observer) == (both, both)
