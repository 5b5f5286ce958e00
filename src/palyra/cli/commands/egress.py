"""``palyra egress``: ask the egress judge, without a daemon and without connecting to anything."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, pass_invocation, tell_of_newer_settings
from palyra.errors import InvalidInput, PalyraError

if TYPE_CHECKING:
    from palyra.daemon.settings import Settings
    from palyra.egress.domain.grant import EgressGrant
    from palyra.egress.domain.judge import Explanation
    from palyra.egress.domain.target import Target

_COLOURS = {"allowed": "green", "refused": "red", "undecided": "yellow"}


class NotAUrl(InvalidInput):
    code = "egress.not_a_url"
    hint = "write http://HOST, https://HOST:PORT or, for other protocols, tcp://HOST:PORT"


@click.group()
def egress() -> None:
    """Ask where tools may go on the network."""


@egress.command()
@click.argument("url", metavar="URL")
@click.option(
    "--resolve/--no-resolve", default=True, help="Whether an allowed name is looked up, and its addresses judged."
)
@click.option(
    "--method", default="GET", metavar="METHOD", help="The request's method, where the host has rules for it."
)
@click.option("--programs", is_flag=True, help="Judge for programs in the sandbox, by sandbox.allowed_hosts.")
@pass_invocation
def check(invocation: Invocation, url: str, resolve: bool, method: str, programs: bool) -> None:
    """Tell step by step whether a tool could reach URL with the settings in force.

    URL is http://, https://, or tcp://HOST:PORT for other protocols. A name that no rule allows is never looked up.
    Nothing is connected to. Exits with 0 when it is allowed, or when nothing speaks against it and --no-resolve left
    the addresses out; with 3 when it is refused.
    """
    from palyra.egress.domain.judge import Explanation, Step
    from palyra.egress.domain.refusal import EgressRefused

    if "://" not in url:
        raise NotAUrl(f"{url!r} is no URL")
    grant = _grant(invocation.settings, programs=programs)
    try:
        target = _target(url)
    except EgressRefused as error:
        step = Step(name="target", outcome="refused", detail=error.message)
        _answer(invocation, url, Explanation(verdict="refused", steps=(step,), code=error.code, reason=error.message))
        return
    explained = _explain(invocation.settings, grant, target, resolve=resolve)
    if explained.verdict != "refused" and grant.inspects(target):
        explained = _add_request(explained, grant, target, method.upper(), url)
    _answer(invocation, url, explained)


def _target(url: str) -> "Target":
    from palyra.egress.domain.target import Target

    scheme, _, rest = url.partition("://")
    return Target.from_authority(rest, scheme="tcp") if scheme.lower() == "tcp" else Target.from_url(url)


def _grant(settings: "Settings", *, programs: bool) -> "EgressGrant":
    from palyra.egress.domain.grant import EgressGrant
    from palyra.egress.domain.rules import parse_rules

    return EgressGrant(
        grant_id="check",
        principal="user:operator",
        run="",
        call="",
        tool="process.run" if programs else "http.fetch",
        rules=parse_rules(settings.sandbox.allowed_hosts if programs else settings.egress.allowed_hosts),
        private_targets=parse_rules(settings.egress.private_targets),
        bindings=settings.egress.bindings,
        request_rules=settings.egress.request_rules,
        max_bytes=settings.egress.max_call_bytes,
        max_tunnels=settings.egress.max_tunnels,
    )


def _explain(settings: "Settings", grant: "EgressGrant", target: "Target", *, resolve: bool) -> "Explanation":
    import msgspec

    from palyra.egress.domain.judge import EgressProxyPolicyService, Explanation, Step
    from palyra.egress.domain.refusal import NameUnresolved
    from palyra.egress.proxy.resolver import OwnAddresses

    service = EgressProxyPolicyService(OwnAddresses())
    explained = service.explain(grant, target, None)
    if resolve and explained.verdict == "undecided":
        try:
            explained = service.explain(grant, target, _looked_up(settings, target))
        except NameUnresolved as error:
            failed = Step(name="resolution", outcome="refused", detail=error.message)
            steps = (*explained.steps[:-1], failed)
            return Explanation(verdict="refused", steps=steps, code=error.code, reason=error.message)
    secrets = tuple(
        Step(name="credential", outcome="passed", detail=f"{binding.secret_ref} goes into {binding.header_name}")
        for binding in grant.bindings
        if explained.verdict != "refused" and binding.names(target)
    )
    return msgspec.structs.replace(explained, steps=explained.steps + secrets)


def _add_request(
    explained: "Explanation", grant: "EgressGrant", target: "Target", method: str, url: str
) -> "Explanation":
    """Add the verdict of the host's rules for requests."""
    import msgspec

    from palyra.egress.domain.judge import Step
    from palyra.egress.domain.refusal import EgressRefused, MalformedTraffic
    from palyra.egress.domain.request_rules import require_request
    from palyra.egress.protocols.http1_request import WebAddress

    try:
        if target.scheme == "tcp":
            raise MalformedTraffic(f"{target.authority} takes HTTP requests only: it has rules for them")
        require_request(grant.request_rules, target, method, WebAddress.parse(url).path)
    except EgressRefused as error:
        step = Step(name="request", outcome="refused", detail=error.message)
        return msgspec.structs.replace(
            explained, verdict="refused", steps=(*explained.steps, step), code=error.code, reason=error.message
        )
    rules = "; ".join(str(rule) for rule in grant.request_rules if rule.names(target))
    step = Step(name="request", outcome="passed", detail=f"{method} is among: {rules}")
    return msgspec.structs.replace(explained, steps=(*explained.steps, step))


def _looked_up(settings: "Settings", target: "Target") -> tuple[str, ...]:
    from palyra.egress.proxy.resolver import SystemResolver

    resolver = SystemResolver(settings.egress.static_hosts)
    try:
        return asyncio.run(resolver.resolve(target.host))
    finally:
        resolver.close()


def _answer(invocation: Invocation, url: str, explained: "Explanation") -> None:
    output = invocation.output
    tell_of_newer_settings(invocation)

    def show(_: Any) -> None:
        output.table(
            ("step", "outcome", "detail"), [(step.name, step.outcome, step.detail) for step in explained.steps]
        )
        output.text("")
        output.text(f"{output.style(explained.verdict, _COLOURS[explained.verdict], 'bold')}: {url}")

    if explained.verdict == "refused":
        show(None)
        steps = [{"name": step.name, "outcome": step.outcome, "detail": step.detail} for step in explained.steps]
        raise PalyraError.registry[explained.code](explained.reason, verdict=explained.verdict, steps=steps)
    output.data({"url": url, "verdict": explained.verdict, "steps": explained.steps}, show)
