"""Policy requests: their entities, the directory of sets, and the form that the journal keeps for a replay."""

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from palyra.errors import InvalidInput
from palyra.ids import Principal, PrincipalKind
from palyra.policy.limits import MAX_CACHED_ENTITIES

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Cache that drops the value unused for longest. Several threads may use it."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._lock = Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            value = self._kept.get(key)
            if value is not None:
                self._kept.move_to_end(key)
            return value

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


ALLOWED: Final = "allowed"
OPERATORS: Final = "operators"
PREAPPROVED: Final = "preapproved"

_TYPE_OF_KIND: Final = {PrincipalKind.USER: "User", PrincipalKind.AGENT: "Agent"}
_KIND_OF_TYPE: Final = {name: kind for kind, name in _TYPE_OF_KIND.items()}
_ENTITY_ESCAPE: Final = "__entity"
_PLAIN: Final = frozenset((str, bool, int))
_encode: Final = msgspec.json.Encoder().encode


class ReservedGroup(InvalidInput):
    code = "policy.reserved_group"
    hint = "choose another name: the groups allowed and operators are filled by access.principals and access.operators"


class EntityRef(msgspec.Struct, frozen=True, order=True):
    type: str
    id: str

    def __str__(self) -> str:
        """Write it as Cedar does, with the id escaped: safe to paste into a policy."""
        return f"{self.type}::{cedar_string(self.id)}"


class Entity(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """An immutable entity, which caches its forms."""

    uid: EntityRef
    attrs: dict[str, Any] = {}
    parents: tuple[EntityRef, ...] = ()

    @cached_property
    def in_cedar(self) -> dict[str, Any]:
        """Return its Cedar JSON, which must not be changed."""
        return {
            "uid": {"type": self.uid.type, "id": self.uid.id},
            "attrs": cedar_value(self.attrs),
            "parents": [{"type": parent.type, "id": parent.id} for parent in self.parents],
        }

    @cached_property
    def document(self) -> bytes:
        return _encode(self.in_cedar)


def cedar_value(value: Any) -> Any:
    """Convert a value to Cedar's JSON: references to entities are marked, sets are lists."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is EntityRef:
        return {_ENTITY_ESCAPE: {"type": value.type, "id": value.id}}
    if kind is dict:
        return {key: item if type(item) in _PLAIN else cedar_value(item) for key, item in value.items()}
    if kind is list or kind is tuple:
        return [cedar_value(item) for item in value]
    if kind is set or kind is frozenset:
        return sorted((cedar_value(item) for item in value), key=repr)
    return value


GATEWAY: Final = Entity(uid=EntityRef("Gateway", "palyra"))


class EntityDirectory(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Sets of principals, tools and channels, as glob patterns over their names.

    It is empty by default, and no policy allows a name that is in no set.
    """

    groups: dict[str, tuple[str, ...]] = {}
    tool_sets: dict[str, tuple[str, ...]] = {}
    channel_sets: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_lists(
        cls,
        *,
        principals: Iterable[str] = (),
        operators: Iterable[str] = (),
        groups: Mapping[str, Iterable[str]] | None = None,
        tools: Iterable[str] = (),
        preapproved: Iterable[str] = (),
        channels: Iterable[str] = (),
    ) -> Self:
        """Build the directory of the settings ``access.*``, ``tools.allowed`` and ``tools.preapproved``."""
        named = {name: tuple(patterns) for name, patterns in (groups or {}).items()}
        if taken := sorted({ALLOWED, OPERATORS} & named.keys()):
            raise ReservedGroup(f"access.groups may not define {taken[0]!r}")
        return cls(
            groups={ALLOWED: tuple(principals), OPERATORS: tuple(operators), **named},
            tool_sets={ALLOWED: tuple(tools), PREAPPROVED: tuple(preapproved)},
            channel_sets={ALLOWED: tuple(channels)},
        )

    @cached_property
    def _known(self) -> Lru[Hashable, Entity]:
        """Return the cache of entities: nearly every call has one of the same few principals, tools and channels."""
        return Lru(MAX_CACHED_ENTITIES)

    def principal(self, principal: Principal) -> Entity:
        found = self._known.get(principal)
        if found is None:
            found = self._user_or_agent(EntityRef(_TYPE_OF_KIND[principal.kind], principal.id))
            self._known.put(principal, found)
        return found

    def tool(self, name: str, capabilities: frozenset[str], sensitive: bool, tier: str) -> Entity:
        described = (name, capabilities, sensitive, tier)
        found = self._known.get(described)
        if found is None:
            found = Entity(
                uid=EntityRef("Tool", name),
                attrs={"capabilities": sorted(map(str, capabilities)), "sensitive": sensitive, "tier": str(tier)},
                parents=_sets_of("ToolSet", self.tool_sets, name),
            )
            self._known.put(described, found)
        return found

    def channel(self, name: str) -> Entity:
        found = self._known.get(name)
        if found is None:
            found = Entity(uid=EntityRef("Channel", name), parents=_sets_of("ChannelSet", self.channel_sets, name))
            self._known.put(name, found)
        return found

    def placed(self, entity: Entity) -> Entity:
        """Replace the entity's sets by those of this directory."""
        match entity.uid.type:
            case "User" | "Agent":
                return self._user_or_agent(entity.uid)
            case "Tool":
                parents = _sets_of("ToolSet", self.tool_sets, entity.uid.id)
            case "Channel":
                parents = _sets_of("ChannelSet", self.channel_sets, entity.uid.id)
            case _:
                return entity
        return Entity(uid=entity.uid, attrs=entity.attrs, parents=parents)

    def _user_or_agent(self, uid: EntityRef) -> Entity:
        return Entity(uid=uid, parents=_sets_of("Group", self.groups, name_of_principal(uid)))


def name_of_principal(uid: EntityRef) -> str:
    """Write ``Agent::"bot"`` as the settings and the command line do: ``agent:bot``."""
    kind = _KIND_OF_TYPE.get(uid.type)
    return f"{kind.value}:{uid.id}" if kind else str(uid)


def cedar_string(text: str) -> str:
    """Write a Cedar string literal. All but plain ASCII is escaped, so that the text is what it looks like."""
    return '"' + "".join(_escape(character) for character in text) + '"'


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if " " <= character <= "~" else f"\\u{{{ord(character):x}}}"


def glob_literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


def _sets_of(set_type: str, sets: Mapping[str, tuple[str, ...]], name: str) -> tuple[EntityRef, ...]:
    return _matching(set_type, tuple(sets.items()), name)


@lru_cache(maxsize=4096)
def _matching(set_type: str, sets: tuple[tuple[str, tuple[str, ...]], ...], name: str) -> tuple[EntityRef, ...]:
    return tuple(EntityRef(set_type, title) for title, patterns in sets if _matcher(patterns).fullmatch(name))


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Join a whole list into one expression. An empty list matches nothing."""
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")


REQUEST_FORMAT_VERSION: Final = 1
TOOL_EXECUTE: Final = "tool.execute"
APPROVED: Final = "approved"
RUN: Final = "run"
ARGUMENT_BYTES: Final = "argument_bytes"
PATHS: Final = "paths"


class UnreadableRequest(InvalidInput):
    code = "policy.request_unreadable"
    hint = "the record was written by another version of Palyra, or shortened when it was written"


class PolicyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request. ``entities`` are those that the context refers to. A context value may be an ``EntityRef``."""

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
    """Build a request for ``tool.execute``. Absent values stay out of the context: the schema has them as optional."""
    context: dict[str, Any] = {
        APPROVED: approved,
        "channel": channel.uid,
        "workspace": workspace,
        RUN: run,
        ARGUMENT_BYTES: argument_bytes,
        PATHS: sorted(set(paths)),
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
    """Return the exact request as plain JSON, for the key ``policy_request`` of a ``call.decided`` event."""
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
        principal=_restore(read.principal),
        action=read.action,
        resource=_restore(read.resource),
        context=_plain(read.context),
        entities=tuple(map(_restore, read.entities)),
    )


def _restore(entity: Entity) -> Entity:
    return msgspec.structs.replace(entity, attrs=_plain(entity.attrs))


def _plain(value: Any) -> Any:
    """Invert ``cedar_value``."""
    match value:
        case {"__entity": {"type": str(kind), "id": str(name)}} if len(value) == 1:
            return EntityRef(kind, name)
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
