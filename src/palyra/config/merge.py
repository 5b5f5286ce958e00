"""Defaults, then the file, then the environment, then flags: the later one wins, and every value keeps its origin.

A setting is replaced as a whole: a list or a table given later does not add to the earlier one.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, get_origin

import msgspec

from palyra.config.agreement import check_together
from palyra.config.settings import (
    ENV_PREFIX,
    ENV_SEPARATOR,
    InvalidSetting,
    SettingInfo,
    Settings,
    known_settings,
)
from palyra.errors import InvalidInput


class UnknownSetting(InvalidInput):
    code = "config.unknown_key"
    hint = "docs/reference/configuration.md lists every setting"


class OriginKind(StrEnum):
    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """``where`` is the file, the variable or the flag; ``line`` is known for files only."""

    kind: OriginKind
    where: str = ""
    line: int | None = None

    def __str__(self) -> str:
        if not self.where:
            return self.kind.value
        return self.where if self.line is None else f"{self.where}:{self.line}"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    value: Any
    origin: Origin


class LoadedSettings(msgspec.Struct, frozen=True, kw_only=True):
    settings: Settings
    origins: dict[str, Origin]


Layer = Mapping[str, Given]


def merge(layers: Sequence[Layer]) -> LoadedSettings:
    """The settings of the layers, weakest first. Every value is checked, also one that a later layer replaces."""
    tree: dict[str, dict[str, Any]] = {}
    origins = dict.fromkeys(known_settings(), Origin(kind=OriginKind.DEFAULT))
    for layer in layers:
        for name, given in layer.items():
            info = known_settings().get(name)
            if info is None:
                raise _unknown(name, given.origin)
            tree.setdefault(info.section, {})[info.key] = _checked(info, given)
            origins[name] = given.origin
    settings = msgspec.convert(tree, Settings)
    try:
        check_together(settings)
    except InvalidSetting as error:
        involved = [origins[name] for name in error.details["settings"]]
        blamed = next((origin for origin in reversed(involved) if origin.kind is not OriginKind.DEFAULT), involved[0])
        raise InvalidSetting(
            f"{blamed}: {error.message}", hint=error.hint, settings=error.details["settings"], origin=str(blamed)
        ) from error
    return LoadedSettings(settings=settings, origins=origins)


def given_in_file(tree: Mapping[str, Any], path: str, lines: Mapping[tuple[str, ...], int]) -> dict[str, Given]:
    """The values of a parsed settings file, by dotted name."""
    found: dict[str, Given] = {}
    for section, body in tree.items():
        keys = {section: (section,)} if not isinstance(body, dict) else {f"{section}.{k}": (section, k) for k in body}
        # An empty table of an unknown name is a misspelling as well.
        if not keys and section not in {info.section for info in known_settings().values()}:
            keys = {section: (section,)}
        for name, place in keys.items():
            value = body[place[1]] if len(place) > 1 else body
            origin = Origin(kind=OriginKind.FILE, where=path, line=lines.get(place))
            found[name] = Given(value=value, origin=origin)
    return found


def given_in_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """``PALYRA_SECTION__KEY`` variables. Names without the double underscore are not settings and are left alone."""
    by_env_name = {info.env_name: info for info in known_settings().values()}
    found: dict[str, Given] = {}
    for variable in sorted(environ):
        if not variable.startswith(ENV_PREFIX) or ENV_SEPARATOR not in variable:
            continue
        origin = Origin(kind=OriginKind.ENVIRONMENT, where=variable)
        info = by_env_name.get(variable)
        if info is None:
            near = difflib.get_close_matches(variable, by_env_name, n=1)
            raise UnknownSetting(
                f"{variable} is not a setting" + (f"; did you mean {near[0]}?" if near else ""), origin=str(origin)
            )
        found[info.name] = Given(value=read_variable(info, environ[variable]), origin=origin)
    return found


def given_as_flags(overrides: Mapping[str, Any]) -> dict[str, Given]:
    return {
        name: Given(value=value, origin=Origin(kind=OriginKind.FLAG, where=f"flag for {name}"))
        for name, value in overrides.items()
    }


def read_variable(info: SettingInfo, raw: str) -> Any:
    """A TOML literal if it is one of the right shape, else plain text, or a list separated by commas."""
    literal = _toml_literal(raw)
    bare = info.type.__origin__
    if bare is str:
        return literal if isinstance(literal, str) else raw
    if get_origin(bare) is tuple:
        return literal if isinstance(literal, list) else [part.strip() for part in raw.split(",") if part.strip()]
    return raw if literal is None else literal


def _toml_literal(raw: str) -> Any:
    try:
        document = tomllib.loads(f"value = {raw}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return document["value"] if len(document) == 1 else None


def _checked(info: SettingInfo, given: Given) -> Any:
    try:
        return msgspec.convert(given.value, info.type)
    except msgspec.ValidationError as error:
        place, complaint = f"{given.origin}: {info.name}", str(error).replace("`", "")
        raise InvalidSetting(
            f"{place}: {complaint[:1].lower()}{complaint[1:]}", setting=info.name, origin=str(given.origin)
        ) from error


def _unknown(name: str, origin: Origin) -> UnknownSetting:
    near = _nearest(name)
    message = f"{origin}: {name} is not a setting" + (f"; did you mean {near}?" if near else "")
    return UnknownSetting(message, setting=name, nearest=near, origin=str(origin))


def _nearest(name: str) -> str:
    """The known name most like this one; a key in the wrong section is found by the key alone."""
    key = name.rpartition(".")[2]
    same_key = [info.name for info in known_settings().values() if info.key == key]
    sections = list(dict.fromkeys(info.section for info in known_settings().values()))
    candidates = same_key or difflib.get_close_matches(name, [*known_settings(), *sections], n=1)
    return candidates[0] if candidates else ""
