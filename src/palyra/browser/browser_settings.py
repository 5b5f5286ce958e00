"""The section ``browser`` of the settings: what sessions may reach, and which secrets may be typed where."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from palyra.egress.limits import MAX_HOST_CHARS
from palyra.egress.refusal import EgressRefused, shown
from palyra.egress.target import Target
from palyra.errors import InvalidInput
from palyra.vault.ref import SecretRef

_LONGEST_RULE: Final = MAX_HOST_CHARS + len("*.:65535")
HostTexts = tuple[Annotated[str, Meta(min_length=1, max_length=_LONGEST_RULE)], ...]


def _says(description: str) -> Meta:
    return Meta(description=description)


class BadTypingBinding(InvalidInput):
    code = "browser.bad_binding"
    hint = "a binding needs secret_ref as scope/key, and origins such as https://shop.example or http://localhost:8080"


class TypingBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One secret and the origins whose pages it may be typed into. No call can name others."""

    secret_ref: str
    origins: tuple[str, ...]

    def check(self) -> None:
        """Raises ``BadTypingBinding`` for what could never work or never be safe."""
        try:
            SecretRef.parse(self.secret_ref)
        except InvalidInput as error:
            raise BadTypingBinding(f"{shown(self.secret_ref)!r} is no secret reference", hint=error.hint) from error
        if not self.origins:
            raise BadTypingBinding(f"the binding of {self.secret_ref} names no origins")
        for origin in self.origins:
            if spelled(origin_target(origin)) != origin:
                raise BadTypingBinding(f"{shown(origin)!r} is spelled {spelled(origin_target(origin))}")


class BrowserSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: Annotated[bool, _says("Whether the browser may be used at all.")] = True
    allowed_hosts: Annotated[
        HostTexts,
        _says("Hosts that browser sessions may have, each within egress.allowed_hosts; empty means all of those."),
    ] = ()
    any_public_host: Annotated[
        bool, _says("Whether sessions may have any public host too, at ports 80 and 443, not only allowed ones.")
    ] = False
    private_targets: Annotated[
        HostTexts,
        _says("Those of the browser's hosts that may have addresses on private networks or on this machine."),
    ] = ()
    bindings: Annotated[
        tuple[TypingBinding, ...],
        _says("Secrets of the vault that may be typed into pages, and the origins of the pages each is for."),
    ] = ()

    def origins_of(self, secret_ref: str) -> tuple[str, ...]:
        """Where this secret may be typed; nowhere when it has no binding."""
        found = (origin for binding in self.bindings if binding.secret_ref == secret_ref for origin in binding.origins)
        return tuple(dict.fromkeys(found))


def origin_target(origin: str) -> Target:
    """The target of an origin as browsers spell it: scheme and host, and the port where it is not the scheme's own."""
    try:
        target = Target.from_url(origin)
    except EgressRefused as odd:
        raise BadTypingBinding(f"{shown(origin)!r} is no origin: {odd.message}") from None
    return target


def spelled(target: Target) -> str:
    usual = {"http": 80, "https": 443}[target.scheme]
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}" + ("" if target.port == usual else f":{target.port}")
