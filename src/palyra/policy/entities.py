"""The things a policy speaks about, and the sets the settings put them in."""

import fnmatch
import re
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final, Self

import msgspec

from palyra.errors import InvalidInput
from palyra.ids import Principal, PrincipalKind
from palyra.policy.limits import MAX_CACHED_ENTITIES
from palyra.policy.lru import Lru

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
        """As Cedar writes it, with the id escaped: safe to paste into a policy whatever the id contains."""
        return f"{self.type}::{cedar_string(self.id)}"


class Entity(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Never changes, its attributes neither: what is made of it once is kept with it."""

    uid: EntityRef
    attrs: dict[str, Any] = {}
    parents: tuple[EntityRef, ...] = ()

    @cached_property
    def in_cedar(self) -> dict[str, Any]:
        """As Cedar's JSON wants it. To be read only."""
        return {
            "uid": {"type": self.uid.type, "id": self.uid.id},
            "attrs": cedar_value(self.attrs),
            "parents": [{"type": parent.type, "id": parent.id} for parent in self.parents],
        }

    @cached_property
    def document(self) -> bytes:
        return _encode(self.in_cedar)


def cedar_value(value: Any) -> Any:
    """A value as Cedar's JSON wants it: references to entities are marked, sets are lists."""
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
    """Which principals, tools and channels are in which sets, as glob patterns over their names.

    Empty by default, and what is in no set is allowed by nothing.
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
        """The directory of the settings access.principals, access.operators, access.groups, tools.allowed,
        tools.preapproved and access.channels."""
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
        """Entities made before: nearly every call is one of the same few principals, tools and channels."""
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
        """The entity in the sets of this directory, in place of those it came with."""
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
    """``Agent::"bot"`` as the settings and the command line write it: ``agent:bot``."""
    kind = _KIND_OF_TYPE.get(uid.type)
    return f"{kind.value}:{uid.id}" if kind else str(uid)


def cedar_string(text: str) -> str:
    """A Cedar string literal. Everything but plain ASCII is escaped, so what is shown is what is meant."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if " " <= character <= "~" else f"\\u{{{ord(character):x}}}"


def glob_literal(name: str) -> str:
    """A pattern that matches exactly this name."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def _sets_of(set_type: str, sets: Mapping[str, tuple[str, ...]], name: str) -> tuple[EntityRef, ...]:
    return _matching(set_type, tuple(sets.items()), name)


@lru_cache(maxsize=4096)
def _matching(set_type: str, sets: tuple[tuple[str, tuple[str, ...]], ...], name: str) -> tuple[EntityRef, ...]:
    return tuple(EntityRef(set_type, title) for title, patterns in sets if _matcher(patterns).fullmatch(name))


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for a whole list. An empty list matches nothing."""
    return re.compile("|".join(map(fnmatch.translate, patterns)) or r"(?!)")
