"""Types of a tree of settings: a struct of sections, each a struct of keys with a type, a default, bounds and one line.

A section may also be a table of named tables, such as ``[workspaces.web]``: then it is one setting without a key.

Validation, ``palyra config show`` and the reference page all read these types.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, get_origin

import msgspec
from msgspec import Meta

from palyra import limits
from palyra.errors import InvalidInput

ENV_PREFIX: Final = "PALYRA_"
ENV_SEPARATOR: Final = "__"


class InvalidSetting(InvalidInput):
    code = "config.invalid_value"
    hint = "docs/reference/configuration.md lists every setting with its type and default"


def describe(description: str) -> Meta:
    return Meta(description=description)


Pattern = Annotated[str, Meta(min_length=1, max_length=limits.MAX_PRINCIPAL_CHARS)]
Patterns = tuple[Pattern, ...]
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Millis = Annotated[int, Meta(ge=1, le=limits.MAX_CALL_TIMEOUT_MS)]


class SettingInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    section: str
    key: str
    type: Any
    default: Any
    description: str

    @property
    def env_name(self) -> str:
        return f"{ENV_PREFIX}{self.name.replace('.', ENV_SEPARATOR)}".upper()


@cache
def known_settings(tree: type[msgspec.Struct]) -> Mapping[str, SettingInfo]:
    """Return every setting by its dotted name, in the order of the tree."""
    found: dict[str, SettingInfo] = {}
    for section in msgspec.structs.fields(tree):
        if get_origin(section.type) is Annotated:
            found[section.name] = SettingInfo(
                name=section.name,
                section=section.name,
                key="",
                type=section.type,
                default=section.default_factory(),
                description=_read_description(section.type),
            )
            continue
        defaults = section.type()
        for field in msgspec.structs.fields(section.type):
            name = f"{section.name}.{field.name}"
            found[name] = SettingInfo(
                name=name,
                section=section.name,
                key=field.name,
                type=field.type,
                default=getattr(defaults, field.name),
                description=_read_description(field.type),
            )
    return found


def _read_description(kind: Any) -> str:
    described = [meta.description for meta in kind.__metadata__ if isinstance(meta, Meta) and meta.description]
    if len(described) != 1:
        raise TypeError(f"a setting needs one description, this has {len(described)}: {kind}")
    return str(described[0])


def value_of(settings: msgspec.Struct, name: str) -> Any:
    section, _, key = name.partition(".")
    return getattr(getattr(settings, section), key) if key else getattr(settings, section)
