"""Arguments of the browser tools as values: actions, the addresses they name, and the secrets they use."""

from collections.abc import Mapping
from typing import Any, Final, cast

import msgspec

from palyra.browser.domain.action import (
    Action,
    BadAction,
    ElementTarget,
    Evaluate,
    Navigate,
    OpenTab,
    SetFileInput,
    Type,
)
from palyra.egress.domain.refusal import render
from palyra.egress.domain.rules import HostRule, find_rule, is_within, parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.limits import WEB_PORTS
from palyra.errors import Denied, InvalidInput
from palyra.limits import KIB, MIB
from palyra.vault.reference import SecretRef

# Of one session. Policy decides about each of them, and the approver sees each.
MAX_HOSTS: Final = 32
# Of one call: an agent that is wrong about a page should look at it before it goes on.
MAX_ACTIONS: Final = 20
# Uploads of one call. They have to fit a message of the browser daemon.
MAX_UPLOADS: Final = 8
MAX_UPLOAD_BYTES: Final = 4 * MIB
MAX_TEXT_CHARS: Final = 16 * KIB
MAX_NAME_CHARS: Final = 64
MAX_REASON_CHARS: Final = 500
MAX_LOG_ENTRIES: Final = 256
# Sessions that one run may have open at once: each is a browser.
MAX_SESSIONS_PER_RUN: Final = 4
# Base64 makes four characters of three bytes; the rest of a result needs little.
RESULT_ROOM_BYTES: Final = 8 * KIB
# A page that navigates during an observation is waited for this often.
MOVING_PAGE_LOOKS: Final = 2
# The second try of a picture that does not fit into a result.
SMALL_PICTURE_QUALITY: Final = 50


# The agents' names of two actions.
_ALIASES: Final = {"upload": "set_file_input", "dialog": "handle_dialog"}
_ELEMENTS: Final = ("target", "to")
BLANK: Final = "about:blank"
ANY_PUBLIC_HOST: Final = "any public host"


class NoHosts(InvalidInput):
    code = "browser.no_hosts"
    hint = "name the hosts the session needs as HOST, HOST:PORT or *.HOST, or give a url whose host it is"


class HostBeyondSettings(Denied):
    """The operator does not let any session have this host."""

    code = "browser.host_beyond_settings"
    hint = "ask the operator to add the host, with its port if it is neither 80 nor 443, to egress.allowed_hosts"


class HostNotAllowed(Denied):
    """This session was not opened with this host."""

    code = "browser.host_not_allowed"
    hint = "open another session with browser.open that names this host"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One action. A secret's value and the content of files are filled in once the call is allowed."""

    action: Action
    secret_ref: str = ""
    paths: tuple[str, ...] = ()


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that a session may reach, as rules: those with private addresses, or any public host besides."""

    hosts: tuple[str, ...] = ()
    private_targets: tuple[str, ...] = ()
    any_public_host: bool = False

    def words(self) -> tuple[str, ...]:
        return (*self.hosts, ANY_PUBLIC_HOST) if self.any_public_host else self.hosts

    def require(self, target: Target) -> None:
        if find_rule(parse_rules(self.hosts), target.host, target.port) is not None:
            return
        if self.any_public_host and target.port in WEB_PORTS:
            return
        raise HostNotAllowed(
            f"{target.authority} is not among the hosts of this session, which are {', '.join(self.words())}",
            host=target.host,
            port=target.port,
            allowed=list(self.words()),
        )


def element(raw: Any) -> ElementTarget | None:
    """Parse an element as agents name it: a ref as text, or an object with one of ref, css, text, role."""
    if raw is None:
        return None
    return cast(
        "ElementTarget", _converted({"ref": raw} if isinstance(raw, str) else raw, ElementTarget, "the element")
    )


def steps_of(arguments: Mapping[str, Any]) -> tuple[Step, ...]:
    return tuple(_step(raw, number) for number, raw in enumerate(arguments["actions"], 1))


def _step(raw: Mapping[str, Any], number: int) -> Step:
    kind = raw["action"]
    place = f"action {number} ({kind})"
    fields = {**raw, "action": _ALIASES.get(kind, kind)}
    for name in _ELEMENTS:
        if isinstance(fields.get(name), str):
            fields[name] = {"ref": fields[name]}
    secret_ref = str(fields.pop("secret", ""))
    paths = tuple(fields.pop("paths", ()))
    if secret_ref:
        if kind != "type" or fields.get("text"):
            raise BadAction(f"{place}: a secret is typed by the action type, without a text beside it")
        SecretRef.parse(secret_ref)
    if kind == "upload":
        if not paths:
            raise BadAction(f"{place}: it needs the paths of the files")
        fields["files"] = ()
    elif paths:
        raise BadAction(f"{place}: paths go with upload")
    return Step(action=cast("Action", _converted(fields, Action, place)), secret_ref=secret_ref, paths=paths)


def _converted(raw: Any, kind: Any, place: str) -> Any:
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as wrong:
        raise BadAction(f"{place}: {wrong}") from None


def addresses_of(steps: tuple[Step, ...]) -> tuple[str, ...]:
    named = (each.action.url for each in steps if isinstance(each.action, Navigate | OpenTab))
    return tuple(url for url in named if url and url != BLANK)


def secrets_of(steps: tuple[Step, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.secret_ref for each in steps if each.secret_ref))


def paths_of(steps: tuple[Step, ...]) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(path for each in steps for path in each.paths))
    if len(found) > MAX_UPLOADS:
        raise BadAction(f"{len(found)} files in one call; {MAX_UPLOADS} are the most")
    return found


def evaluates(steps: tuple[Step, ...]) -> bool:
    return any(isinstance(each.action, Evaluate) for each in steps)


def require_one_way(arguments: Mapping[str, Any]) -> None:
    """Refuse ``browser.navigate`` with no destination or with two."""
    if ("url" in arguments) == ("to" in arguments):
        raise BadAction("browser.navigate needs a url, or to: back, forward or reload")


def require_save(arguments: Mapping[str, Any]) -> None:
    """Refuse ``browser.downloads`` with a download to save and no path, or the reverse."""
    if ("save" in arguments) != ("path" in arguments):
        raise BadAction("to save a download name it and the path in the workspace")


def target_of(url: str) -> Target:
    return Target.from_url(url)


def host_words(target: Target) -> str:
    return target.host if target.port in WEB_PORTS else target.authority


def add_hosts(arguments: dict[str, Any]) -> dict[str, Any]:
    """Write the hosts of ``browser.open`` out: the person who approves them sees them all."""
    hosts = list(arguments.get("hosts", ()))
    if "url" in arguments:
        target = target_of(arguments["url"])
        rules = parse_rules(tuple(hosts))
        if find_rule(rules, target.host, target.port) is None and not arguments.get("any_public_host"):
            hosts.append(host_words(target))
    if not hosts and not arguments.get("any_public_host"):
        raise NoHosts("a session needs the hosts that it may reach")
    if len(hosts) > MAX_HOSTS:
        raise NoHosts(f"{len(hosts)} hosts; {MAX_HOSTS} are the most")
    return {**arguments, "hosts": list(dict.fromkeys(str(rule) for rule in parse_rules(tuple(hosts))))}


def reach_of(arguments: Mapping[str, Any], ceiling: Reach) -> Reach:
    asked = parse_rules(tuple(arguments["hosts"]))
    most, private = parse_rules(ceiling.hosts), parse_rules(ceiling.private_targets)
    for rule in asked:
        if not is_within(rule, most) and not (ceiling.any_public_host and _is_public(rule)):
            raise HostBeyondSettings(
                f"{render(str(rule))} is not among the hosts that the browser may have: "
                + (", ".join(ceiling.words()) or "none"),
                host=rule.host,
                allowed=list(ceiling.words()),
            )
    any_public = bool(arguments.get("any_public_host"))
    if any_public and not ceiling.any_public_host:
        raise HostBeyondSettings(
            "no session may go to any public host",
            hint="name the hosts; or ask the operator to set browser.any_public_host",
            allowed=list(ceiling.words()),
        )
    opened = [rule for rule in asked if is_within(rule, private)]
    opened += [rule for rule in private if is_within(rule, asked) and rule not in opened]
    return Reach(hosts=tuple(map(str, asked)), private_targets=tuple(map(str, opened)), any_public_host=any_public)


def _is_public(rule: HostRule) -> bool:
    """Whether the rule could mean a public host. Its addresses are judged when it is looked up."""
    return rule.port is None or rule.port in WEB_PORTS


def fill_step(step: Step, **filled: Any) -> Action:
    assert isinstance(step.action, Type | SetFileInput)
    return msgspec.structs.replace(step.action, **filled)
