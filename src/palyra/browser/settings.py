"""The section ``browser`` of the settings: the hosts and budgets of sessions, and the bindings of secrets."""

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from palyra.browser.domain import limits
from palyra.browser.domain.budget import FIELDS, BadBudget, SessionBudget
from palyra.egress.domain.refusal import EgressRefused, render
from palyra.egress.domain.target import Target
from palyra.egress.limits import MAX_HOST_CHARS
from palyra.errors import InvalidInput
from palyra.vault.reference import SecretRef

if TYPE_CHECKING:
    from palyra.browser.domain.download import DownloadRules

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
        """Raise ``BadTypingBinding`` for a binding that could never work or never be safe."""
        try:
            SecretRef.parse(self.secret_ref)
        except InvalidInput as error:
            raise BadTypingBinding(f"{render(self.secret_ref)!r} is no secret reference", hint=error.hint) from error
        if not self.origins:
            raise BadTypingBinding(f"the binding of {self.secret_ref} names no origins")
        for origin in self.origins:
            if spelled(origin_target(origin)) != origin:
                raise BadTypingBinding(f"{render(origin)!r} is spelled {spelled(origin_target(origin))}")


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
    ready: Annotated[
        int,
        Meta(ge=0, le=limits.MAX_READY_PROCESSES),
        _says("Browsers that are started ahead of need; each costs about 60 MB."),
    ] = limits.READY_PROCESSES
    max_sessions: Annotated[
        int, Meta(ge=1, le=limits.HIGHEST_SESSIONS), _says("Sessions that may be open at once.")
    ] = limits.MAX_SESSIONS
    max_sessions_per_principal: Annotated[
        int, Meta(ge=1, le=limits.HIGHEST_SESSIONS), _says("Sessions that one principal may have open at once.")
    ] = limits.MAX_SESSIONS_PER_PRINCIPAL
    engine: Annotated[str, _says("The Chromium program; empty looks where distributions put its headless shell.")] = ""
    allow_no_sandbox: Annotated[
        bool, _says("Whether Chromium may run without its own sandbox where the machine does not let it have one.")
    ] = False
    session_budget: Annotated[
        dict[str, int],
        _says("The most that sessions may ask for, by field of the session budget; others keep their default."),
    ] = {}
    download_types: Annotated[
        tuple[str, ...], _says("Endings of files that may be downloaded, besides .txt, .csv, .pdf and .json.")
    ] = ()
    health_port: Annotated[
        int, Meta(ge=0, le=65535), _says("Port of the browser daemon's health page on loopback; 0 takes any free one.")
    ] = 0

    def ceiling(self) -> SessionBudget:
        """Raise ``BadBudget`` for an unknown field or a forbidden value."""
        unknown = next((name for name in self.session_budget if name not in FIELDS), None)
        if unknown is not None:
            raise BadBudget(f"a session budget has no field {unknown[:64]!r}")
        return SessionBudget(**self.session_budget)

    def downloads(self) -> "DownloadRules":
        """Raise ``UnknownFileType`` for an ending whose content cannot be checked."""
        # The module of file types is slow to load, and most commands do not use it.
        from palyra.browser.domain.download import rules

        return rules(self.download_types)

    def origins_of(self, secret_ref: str) -> tuple[str, ...]:
        """Return the origins where this secret may be typed. A secret without a binding is typed nowhere."""
        found = (origin for binding in self.bindings if binding.secret_ref == secret_ref for origin in binding.origins)
        return tuple(dict.fromkeys(found))


def origin_target(origin: str) -> Target:
    """Parse an origin as browsers spell it: scheme and host, and any port that is not the scheme's own."""
    try:
        target = Target.from_url(origin)
    except EgressRefused as odd:
        raise BadTypingBinding(f"{render(origin)!r} is no origin: {odd.message}") from None
    return target


def spelled(target: Target) -> str:
    usual = {"http": 80, "https": 443}[target.scheme]
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{target.scheme}://{host}" + ("" if target.port == usual else f":{target.port}")
