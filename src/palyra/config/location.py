"""Where the settings file and the state directory are.

The flag wins over the variable, the variable over the XDG place of this user. A place somebody named must exist or be
makeable; the default settings file may be absent.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from palyra.config.toml_file import SettingsUnreadable

if TYPE_CHECKING:
    from palyra.config.settings import Settings

APP_NAME: Final = "palyra"
CONFIG_VARIABLE: Final = "PALYRA_CONFIG"
STATE_DIR_VARIABLE: Final = "PALYRA_STATE_DIR"
CONFIG_FILE_NAME: Final = "config.toml"
VAULT_KEY_FILE_NAME: Final = "vault.key"


class Locations(msgspec.Struct, frozen=True, kw_only=True):
    config_file: Path
    config_named_by: str
    state_dir: Path
    state_dir_named_by: str

    def existing_config_file(self) -> Path | None:
        """The file to read, or None where the default one was never written."""
        if self.config_file.exists():
            return self.config_file
        if self.config_named_by == "default":
            return None
        raise SettingsUnreadable(
            f"the settings file {self.config_file} named by {self.config_named_by} does not exist",
            path=str(self.config_file),
        )

    def policy_dir(self, settings: "Settings") -> Path:
        if settings.policy.dir:
            return Path(settings.policy.dir).expanduser()
        return self.config_file.parent / "policies"

    def vault_key_file(self, settings: "Settings") -> Path:
        """Never in the state directory: whoever copies that must not have the key with it."""
        if settings.vault.key_file:
            return Path(settings.vault.key_file).expanduser()
        return self.config_file.parent / VAULT_KEY_FILE_NAME

    def workspace_root(self, settings: "Settings") -> Path:
        return Path(settings.workspace.root).expanduser() if settings.workspace.root else self.state_dir / "workspace"


def locate(
    environ: Mapping[str, str], *, config_option: Path | None = None, state_dir_option: Path | None = None
) -> Locations:
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
