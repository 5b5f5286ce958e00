"""Settings from all their sources, and the places of the settings file and the state directory.

Defaults, then the file, then the environment, then flags: the later source wins, and every value keeps its origin. A
setting is replaced as a whole: a later list or table does not add to the earlier one.
"""

import contextlib
import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, get_origin

import msgspec

from palyra.config.setting_types import ENV_PREFIX, ENV_SEPARATOR, InvalidSetting, SettingInfo, known_settings
from palyra.config.state_dir import refuse_if_others_may_write
from palyra.config.toml_lines import TomlRefused, lines_of_keys
from palyra.errors import InvalidInput, Unavailable
from palyra.limits import KIB

Tree = TypeVar("Tree", bound=msgspec.Struct)


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


class LoadedSettings(msgspec.Struct, Generic[Tree], frozen=True, kw_only=True):
    settings: Tree
    origins: dict[str, Origin]


Layer = Mapping[str, Given]


def merge(tree: type[Tree], layers: Sequence[Layer], check: Callable[[Tree], None]) -> LoadedSettings[Tree]:
    """Merge the layers, weakest first. Every value is checked, also one that a later layer replaces.

    ``check`` refuses values that do not go together, with an ``InvalidSetting`` that names the settings.
    """
    known = known_settings(tree)
    values: dict[str, Any] = {}
    origins = dict.fromkeys(known, Origin(kind=OriginKind.DEFAULT))
    for layer in layers:
        for name, given in layer.items():
            info = known.get(name)
            if info is None:
                raise _unknown(known, name, given.origin)
            if info.key:
                values.setdefault(info.section, {})[info.key] = _convert(info, given)
            else:
                values[name] = _convert(info, given)
            origins[name] = given.origin
    settings = msgspec.convert(values, tree)
    try:
        check(settings)
    except InvalidSetting as error:
        involved = [origins[name] for name in error.details["settings"]]
        blamed = next((origin for origin in reversed(involved) if origin.kind is not OriginKind.DEFAULT), involved[0])
        raise InvalidSetting(
            f"{blamed}: {error.message}", hint=error.hint, settings=error.details["settings"], origin=str(blamed)
        ) from error
    return LoadedSettings(settings=settings, origins=origins)


def given_in_file(tree: type[msgspec.Struct], file: "TomlFile") -> dict[str, Given]:
    known = known_settings(tree)
    sections = {info.section for info in known.values()}
    found: dict[str, Given] = {}
    for section, body in file.tree.items():
        whole = section in known or not isinstance(body, dict)
        keys = {section: (section,)} if whole else {f"{section}.{k}": (section, k) for k in body}
        # An empty table of an unknown name is a misspelling as well.
        if not keys and section not in sections:
            keys = {section: (section,)}
        for name, place in keys.items():
            value = body[place[1]] if len(place) > 1 else body
            origin = Origin(kind=OriginKind.FILE, where=str(file.path), line=file.lines.get(place))
            found[name] = Given(value=value, origin=origin)
    return found


def given_in_environment(tree: type[msgspec.Struct], environ: Mapping[str, str]) -> dict[str, Given]:
    """Read ``PALYRA_SECTION__KEY`` variables. Ignore other names without the double underscore."""
    by_env_name = {info.env_name: info for info in known_settings(tree).values()}
    found: dict[str, Given] = {}
    for variable in sorted(environ):
        info = by_env_name.get(variable)
        if info is None and not (variable.startswith(ENV_PREFIX) and ENV_SEPARATOR in variable):
            continue
        origin = Origin(kind=OriginKind.ENVIRONMENT, where=variable)
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
    """Read a variable as a TOML literal of the right shape, else as plain text, or as a list separated by commas."""
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


def _convert(info: SettingInfo, given: Given) -> Any:
    try:
        return msgspec.convert(given.value, info.type)
    except msgspec.ValidationError as error:
        place, complaint = f"{given.origin}: {info.name}", str(error).replace("`", "")
        raise InvalidSetting(
            f"{place}: {complaint[:1].lower()}{complaint[1:]}", setting=info.name, origin=str(given.origin)
        ) from error


def _unknown(known: Mapping[str, SettingInfo], name: str, origin: Origin) -> UnknownSetting:
    near = _find_nearest(known, name)
    message = f"{origin}: {name} is not a setting" + (f"; did you mean {near}?" if near else "")
    return UnknownSetting(message, setting=name, nearest=near, origin=str(origin))


def _find_nearest(known: Mapping[str, SettingInfo], name: str) -> str:
    """Return the known name most like this one. A key in the wrong section is found by the key alone."""
    key = name.rpartition(".")[2]
    same_key = [info.name for info in known.values() if info.key == key]
    sections = list(dict.fromkeys(info.section for info in known.values()))
    candidates = same_key or difflib.get_close_matches(name, [*known, *sections], n=1)
    return candidates[0] if candidates else ""


# A settings file is written by hand; a larger one is another file, named by mistake.
MAX_SETTINGS_FILE_BYTES: Final = 256 * KIB


class SettingsSyntax(InvalidInput):
    code = "config.syntax"
    hint = "the settings file is TOML; see https://toml.io"


class SettingsUnreadable(Unavailable):
    code = "config.unreadable"
    hint = "check the path and its permissions"


class TomlFile(msgspec.Struct, frozen=True, kw_only=True):
    path: Path
    tree: dict[str, Any]
    lines: dict[tuple[str, ...], int]


def read_toml(path: Path) -> TomlFile:
    try:
        refuse_if_others_may_write(path)
        with path.open("rb") as file:
            raw = file.read(MAX_SETTINGS_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsUnreadable(f"cannot read {path}: {error.strerror}", path=str(path)) from error
    if len(raw) > MAX_SETTINGS_FILE_BYTES:
        raise SettingsSyntax(f"{path} is larger than {MAX_SETTINGS_FILE_BYTES} bytes", path=str(path))
    try:
        text = raw.decode()
        tree = tomllib.loads(text)
        lines = lines_of_keys(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, TomlRefused, RecursionError) as error:
        raise SettingsSyntax(f"{path}: {error}", path=str(path)) from error
    return TomlFile(path=path, tree=tree, lines=lines)


def load_tree(
    tree: type[Tree],
    config_path: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, Any],
    check: Callable[[Tree], None],
) -> LoadedSettings[Tree]:
    """Load one tree. ``overrides`` are flags, as in ``{"daemon.port": 0}``; without a path no file is read."""
    layers = [given_in_environment(tree, environ), given_as_flags(overrides)]
    if config_path is not None:
        layers.insert(0, given_in_file(tree, read_toml(config_path)))
    return merge(tree, layers, check)


APP_NAME: Final = "palyra"
CONFIG_VARIABLE: Final = "PALYRA_CONFIG"
STATE_DIR_VARIABLE: Final = "PALYRA_STATE_DIR"
CONFIG_FILE_NAME: Final = "config.toml"
VAULT_KEY_FILE_NAME: Final = "vault.key"
ARGUMENT_KEY_FILE_NAME: Final = "arguments.key"


class Locations(msgspec.Struct, frozen=True, kw_only=True):
    config_file: Path
    config_named_by: str
    state_dir: Path
    state_dir_named_by: str

    def find_config_file(self) -> Path | None:
        """Return the file to read; None if the default one was never written."""
        if self.config_file.exists():
            return self.config_file
        if self.config_named_by == "default":
            # Who may write the folder takes a file away, with all that it restricts.
            with contextlib.suppress(FileNotFoundError):
                refuse_if_others_may_write(self.config_file)
            return None
        raise SettingsUnreadable(
            f"the settings file {self.config_file} named by {self.config_named_by} does not exist",
            path=str(self.config_file),
        )

    def policy_dir(self, configured: str) -> Path:
        return Path(configured).expanduser() if configured else self.config_file.parent / "policies"

    def vault_key_file(self, configured: str) -> Path:
        """Return a path outside of the state directory: a copy of that directory must not contain the key."""
        return Path(configured).expanduser() if configured else self.config_file.parent / VAULT_KEY_FILE_NAME

    def workspace_root(self, configured: str) -> Path:
        return Path(configured).expanduser() if configured else self.state_dir / "workspace"


def locate(
    environ: Mapping[str, str], *, config_option: Path | None = None, state_dir_option: Path | None = None
) -> Locations:
    """Find the settings file and the state directory: the flag, else the variable, else this user's XDG place."""
    from platformdirs import user_config_path, user_state_path

    config_file, config_by = _first(config_option, "--config", environ, CONFIG_VARIABLE)
    state_dir, state_by = _first(state_dir_option, "--state-dir", environ, STATE_DIR_VARIABLE)
    return Locations(
        config_file=(config_file or user_config_path(APP_NAME, appauthor=False) / CONFIG_FILE_NAME).absolute(),
        config_named_by=config_by,
        state_dir=(state_dir or user_state_path(APP_NAME, appauthor=False)).absolute(),
        state_dir_named_by=state_by,
    )


def _first(option: Path | None, flag: str, environ: Mapping[str, str], variable: str) -> tuple[Path | None, str]:
    if option is not None:
        return option.expanduser(), flag
    if environ.get(variable):
        return Path(environ[variable]).expanduser(), variable
    return None, "default"
