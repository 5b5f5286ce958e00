"""Settings from all their sources: the one function that daemons and commands call."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palyra.config.merge import LoadedSettings, given_as_flags, given_in_environment, given_in_file, merge
from palyra.config.toml_file import read_toml


def load_settings(config_path: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any]) -> LoadedSettings:
    """``overrides`` are flags by dotted name, as in ``{"daemon.port": 0}``; without a path no file is read."""
    layers = [given_in_environment(environ), given_as_flags(overrides)]
    if config_path is not None:
        file = read_toml(config_path)
        layers.insert(0, given_in_file(file.tree, str(file.path), file.lines))
    return merge(layers)
