"""The policy questions of browser calls, besides the use of the tool: hosts, secrets, files and scripts."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from palyra.browser.settings import BrowserSettings, origin_target
from palyra.egress.domain.rules import parse_rules
from palyra.egress.domain.target import Target
from palyra.egress.settings import EgressSettings
from palyra.errors import Denied, LimitExceeded
from palyra.executors.browser import arguments as tool_arguments
from palyra.executors.browser.arguments import Reach, Step
from palyra.executors.browser.session_registry import SessionRegistry, session_entity
from palyra.pipeline.domain.spec import Asker, BrowserOfCall
from palyra.policy.request import APPROVED, Entity, EntityDirectory, EntityRef, PolicyRequest, tool_request
from palyra.vault.access import SecretUse, require_scope, use_request
from palyra.vault.reference import SecretRef

NAVIGATE: Final = "browser.navigate"
UPLOAD: Final = "browser.upload"
EVALUATE: Final = "browser.evaluate"
# The name of a session that is not open yet.
NEW: Final = "new"
# The host in a policy's eyes where every public one is meant.
EVERY_HOST: Final = "*"
_SCHEMES: Final = {80: "http", 443: "https"}
FileEntity = Callable[[EntityDirectory, str], Entity]


class SecretNotBound(Denied):
    code = "browser.secret_not_bound"
    hint = "the operator says where a secret may be typed, in browser.bindings: secret_ref and origins"


class RunHasSessions(LimitExceeded):
    code = "browser.run_has_sessions"
    hint = "close a session of this run with browser.close first"


def ceiling_of(browser: BrowserSettings, egress: EgressSettings) -> Reach:
    return Reach(
        hosts=browser.allowed_hosts or egress.allowed_hosts,
        private_targets=browser.private_targets,
        any_public_host=browser.any_public_host,
    )


def bound_targets(browser: BrowserSettings, secret_ref: str, reach: Reach) -> tuple[tuple[str, Target], ...]:
    bound = browser.origins_of(secret_ref)
    if not bound:
        raise SecretNotBound(f"{secret_ref} is bound to no origin, so it is typed nowhere", ref=secret_ref)
    found = []
    for origin in bound:
        target = origin_target(origin)
        try:
            reach.require(target)
        except tool_arguments.HostNotAllowed:
            continue
        found.append((origin, target))
    if not found:
        raise SecretNotBound(
            f"{secret_ref} is bound to {', '.join(bound)}, which this session does not reach",
            hint="open a session with that host, or use the secret that belongs to this site",
            ref=secret_ref,
        )
    return tuple(found)


class BrowserQuestions:
    """``file_entity`` builds the entity of a file tool, so that its policies also bind uploads and downloads."""

    def __init__(
        self, settings: BrowserSettings, ceiling: Reach, registry: SessionRegistry, *, file_entity: FileEntity
    ) -> None:
        self._settings = settings
        self._ceiling = ceiling
        self._registry = registry
        self._file_entity = file_entity

    def of_open(self, asker: Asker, arguments: Mapping[str, Any]) -> BrowserOfCall:
        reach = tool_arguments.reach_of(arguments, self._ceiling)
        if "url" in arguments:
            reach.require(tool_arguments.target_of(arguments["url"]))
        if self._registry.in_run(asker.run) >= tool_arguments.MAX_SESSIONS_PER_RUN:
            raise RunHasSessions(f"this run has {tool_arguments.MAX_SESSIONS_PER_RUN} sessions open")
        session = session_entity(NEW, asker.principal, reach)
        # There is no session to name in the question about the tool, so policy judges its hosts one by one.
        return BrowserOfCall(questions=host_questions(asker, session, reach))

    def of_session(self, asker: Asker, arguments: Mapping[str, Any]) -> BrowserOfCall:
        return BrowserOfCall(session=self._registry.of(asker.principal, asker.run, arguments["session"]).entity)

    def of_navigate(self, asker: Asker, arguments: Mapping[str, Any]) -> BrowserOfCall:
        session = self._registry.of(asker.principal, asker.run, arguments["session"])
        urls = (arguments["url"],) if "url" in arguments else ()
        questions = navigations(asker, session.entity, session.reach, urls)
        return BrowserOfCall(session=session.entity, questions=questions)

    def of_act(self, asker: Asker, arguments: Mapping[str, Any]) -> BrowserOfCall:
        session = self._registry.of(asker.principal, asker.run, arguments["session"])
        steps = tool_arguments.steps_of(arguments)
        entity = session.entity
        questions = list(navigations(asker, entity, session.reach, tool_arguments.addresses_of(steps)))
        questions += self._secret_questions(asker, steps, session.reach)
        if paths := tool_arguments.paths_of(steps):
            questions += [self._file_question(asker, "fs.read", paths), upload_question(asker, entity, paths)]
        if tool_arguments.evaluates(steps):
            questions.append(evaluate_question(asker, entity))
        return BrowserOfCall(session=entity, questions=tuple(questions))

    def of_downloads(self, asker: Asker, arguments: Mapping[str, Any]) -> BrowserOfCall:
        session = self._registry.of(asker.principal, asker.run, arguments["session"])
        saves = (self._file_question(asker, "fs.write", (arguments["path"],)),) if "save" in arguments else ()
        return BrowserOfCall(session=session.entity, questions=saves)

    def _secret_questions(self, asker: Asker, steps: Iterable[Step], reach: Reach) -> list[PolicyRequest]:
        questions = []
        for ref in tool_arguments.secrets_of(tuple(steps)):
            secret = SecretRef.parse(ref)
            for _, target in bound_targets(self._settings, ref, reach):
                use = SecretUse(
                    principal=asker.principal,
                    channel=asker.channel,
                    run=asker.run,
                    tool=asker.tool,
                    host=target.host,
                    port=target.port,
                )
                require_scope(secret, use)
                questions.append(use_request(asker.directory, secret, use))
        return questions

    def _file_question(self, asker: Asker, tool: str, paths: tuple[str, ...]) -> PolicyRequest:
        """Ask as if the file tool were called: the browser does not touch what it may not touch."""
        return tool_request(
            asker.directory.principal(asker.principal),
            self._file_entity(asker.directory, tool),
            asker.directory.channel(asker.channel),
            workspace=asker.workspace,
            run=asker.run,
            argument_bytes=0,
            paths=paths,
            session=asker.session or None,
            device=Entity(uid=EntityRef("Device", asker.device)) if asker.device else None,
        )


def host_questions(asker: Asker, session: Entity, reach: Reach, *, approved: bool = False) -> tuple[PolicyRequest, ...]:
    asked = []
    for rule in parse_rules(reach.hosts):
        name = f"*.{rule.host}" if rule.below else rule.host
        asked += [(_SCHEMES.get(port, "http"), name, port) for port in rule.ports]
    if reach.any_public_host:
        asked += [(scheme, EVERY_HOST, port) for port, scheme in _SCHEMES.items()]
    return tuple(_navigation(asker, session, *each, approved=approved) for each in asked)


def navigations(asker: Asker, session: Entity, reach: Reach, urls: Iterable[str]) -> tuple[PolicyRequest, ...]:
    targets = tuple(map(tool_arguments.target_of, urls))
    for target in targets:
        reach.require(target)
    return tuple(
        _navigation(asker, session, target.scheme, target.host, target.port) for target in dict.fromkeys(targets)
    )


def _navigation(
    asker: Asker, session: Entity, scheme: str, host: str, port: int, *, approved: bool = False
) -> PolicyRequest:
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return _question(
        asker,
        NAVIGATE,
        Entity(uid=EntityRef("Host", authority), attrs={"name": host, "port": port}),
        {"scheme": scheme, "browser_session": session.uid},
        session,
        approved=approved,
    )


def upload_question(asker: Asker, session: Entity, paths: tuple[str, ...]) -> PolicyRequest:
    return _question(asker, UPLOAD, session, {"paths": sorted(set(paths))})


def evaluate_question(asker: Asker, session: Entity) -> PolicyRequest:
    return _question(asker, EVALUATE, session, {})


def _question(
    asker: Asker,
    action: str,
    resource: Entity,
    context: dict[str, Any],
    *others: Entity,
    approved: bool = False,
) -> PolicyRequest:
    channel = asker.directory.channel(asker.channel)
    return PolicyRequest(
        principal=asker.directory.principal(asker.principal),
        action=action,
        resource=resource,
        context={APPROVED: approved, "channel": channel.uid, "run": asker.run, **context},
        entities=(channel, *others),
    )
