"""What is asked of the policy engine, and the form in which the journal keeps it for a later replay."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from palyra.errors import InvalidInput
from palyra.policy.entities import Entity, EntityRef, cedar_value

REQUEST_FORMAT_VERSION: Final = 1
TOOL_EXECUTE: Final = "tool.execute"
APPROVED: Final = "approved"
RUN: Final = "run"
ARGUMENT_BYTES: Final = "argument_bytes"


class UnreadableRequest(InvalidInput):
    code = "policy.request_unreadable"
    hint = "the record was written by another version of Palyra, or shortened when it was written"


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """``entities`` are those that the context refers to. A context value may be an ``EntityRef``."""

    principal: Entity
    action: str
    resource: Entity
    context: dict[str, Any]
    entities: tuple[Entity, ...] = ()

    def everyone(self) -> tuple[Entity, ...]:
        return (self.principal, self.resource, *self.entities)

    def with_context(self, **changes: Any) -> "PolicyRequest":
        return msgspec.structs.replace(self, context={**self.context, **changes})


def tool_request(
    principal: Entity,
    tool: Entity,
    channel: Entity,
    *,
    approved: bool = False,
    workspace: str,
    run: str,
    argument_bytes: int,
    paths: Iterable[str] = (),
    hosts: Iterable[str] = (),
    session: str | None = None,
    device: Entity | None = None,
    skill: Entity | None = None,
    browser_session: Entity | None = None,
) -> PolicyRequest:
    """A request for ``tool.execute``. What is absent stays out of the context, as the schema's optional attributes."""
    context: dict[str, Any] = {
        APPROVED: approved,
        "channel": channel.uid,
        "workspace": workspace,
        RUN: run,
        ARGUMENT_BYTES: argument_bytes,
        "paths": sorted(set(paths)),
        "hosts": sorted(set(hosts)),
    }
    if session is not None:
        context["session"] = session
    if device is not None:
        context["device"] = device.uid
    if skill is not None:
        context["skill"] = skill.uid
    if browser_session is not None:
        context["browser_session"] = browser_session.uid
    return PolicyRequest(
        principal=principal,
        action=TOOL_EXECUTE,
        resource=tool,
        context=context,
        entities=tuple(entity for entity in (channel, device, skill, browser_session) if entity is not None),
    )


def policy_request_to_json(request: PolicyRequest) -> dict[str, Any]:
    """Plain JSON values: the exact request, for the key ``policy_request`` of a ``call.decided`` event."""
    return {
        "version": REQUEST_FORMAT_VERSION,
        "principal": request.principal.in_cedar,
        "action": request.action,
        "resource": request.resource.in_cedar,
        "context": cedar_value(request.context),
        "entities": [entity.in_cedar for entity in request.entities],
    }


class _Recorded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int
    principal: Entity
    action: str
    resource: Entity
    context: dict[str, Any]
    entities: tuple[Entity, ...]


def policy_request_from_json(recorded: Any) -> PolicyRequest:
    if not isinstance(recorded, dict):
        raise UnreadableRequest("the record carries no policy request")
    version = recorded.get("version")
    if version != REQUEST_FORMAT_VERSION:
        raise UnreadableRequest(f"policy request version {version!r} is not {REQUEST_FORMAT_VERSION}")
    try:
        read = msgspec.convert(recorded, _Recorded)
    except msgspec.ValidationError as error:
        raise UnreadableRequest(f"the recorded policy request is malformed: {error}") from error
    return PolicyRequest(
        principal=_restored(read.principal),
        action=read.action,
        resource=_restored(read.resource),
        context=_plain(read.context),
        entities=tuple(map(_restored, read.entities)),
    )


def _restored(entity: Entity) -> Entity:
    return msgspec.structs.replace(entity, attrs=_plain(entity.attrs))


def _plain(value: Any) -> Any:
    """The inverse of ``cedar_value``."""
    match value:
        case {"__entity": {"type": str(kind), "id": str(name)}} if len(value) == 1:
            return EntityRef(kind, name)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
