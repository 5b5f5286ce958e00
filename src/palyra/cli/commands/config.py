"""``palyra config``: what is set, where it came from, and where the files are."""

import json
from pathlib import Path
from typing import Any

import click
import msgspec

from palyra.cli.invocation import Invocation, pass_invocation


@click.group()
def config() -> None:
    """Show settings and where they came from."""


@config.command()
@click.option("--origin", is_flag=True, help="Say for each value where it came from.")
@pass_invocation
def show(invocation: Invocation, origin: bool) -> None:
    """Show every setting in force."""
    from palyra.config.setting_types import value_of

    loaded = invocation.loaded
    data: dict[str, Any] = {"settings": loaded.settings}
    if origin:
        data["origins"] = {
            name: {"kind": source.kind, "where": source.where, "line": source.line}
            for name, source in loaded.origins.items()
        }

    def as_table(_: Any) -> None:
        rows = [
            (name, as_toml(value_of(loaded.settings, name)), str(origin)) for name, origin in loaded.origins.items()
        ]
        invocation.output.table(("setting", "value", "origin"), rows)

    invocation.output.data(data, as_table if origin else lambda _: settings_as_toml(loaded.settings))


@config.command()
@pass_invocation
def path(invocation: Invocation) -> None:
    """Show which files and folders are used."""
    places = invocation.locations
    settings = invocation.settings
    data: dict[str, Any] = {
        "config_file": str(places.config_file),
        "config_file_exists": places.config_file.exists(),
        "config_named_by": places.config_named_by,
        "policy_dir": str(places.policy_dir(settings.policy.dir)),
        "state_dir": str(places.state_dir),
        "state_dir_named_by": places.state_dir_named_by,
        "workspace_root": str(places.workspace_root(settings.workspace.root)),
    }

    if settings.workspaces:
        data["workspaces"] = {name: str(Path(each.root).expanduser()) for name, each in settings.workspaces.items()}

    def as_table(_: Any) -> None:
        written = "" if data["config_file_exists"] else ", not written yet"
        rows = [
            ("settings", data["config_file"], f"{places.config_named_by}{written}"),
            ("policies", data["policy_dir"], str(invocation.loaded.origins["policy.dir"])),
            ("state", data["state_dir"], places.state_dir_named_by),
            ("workspace", data["workspace_root"], str(invocation.loaded.origins["workspace.root"])),
        ]
        named_by = str(invocation.loaded.origins["workspaces"])
        rows += [(f"workspace {name}", root, named_by) for name, root in data.get("workspaces", {}).items()]
        invocation.output.table(("what", "path", "named by"), rows)

    invocation.output.data(data, as_table)


def settings_as_toml(settings: msgspec.Struct) -> str:
    """Write a document that can be saved as the settings file and means the same."""
    from palyra.config.setting_types import known_settings, value_of

    lines: list[str] = []
    section = ""
    for name, info in known_settings(type(settings)).items():
        if info.section != section:
            section = info.section
            lines += ["", f"[{section}]"]
        value = value_of(settings, name)
        if info.key:
            lines.append(f"{info.key} = {as_toml(value)}")
        else:
            lines += [f"{as_toml(key)} = {as_toml(table)}" for key, table in value.items()]
    return "\n".join(lines[1:])


def as_toml(value: Any) -> str:
    """Write a setting's value as TOML does on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON in ASCII is a TOML basic string, except that TOML has no surrogate pairs and wants DEL escaped.
        return '"' + "".join(_toml_character(character) for character in value) + '"'
    if isinstance(value, msgspec.Struct):
        return as_toml(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        inner = ", ".join(f"{as_toml(key)} = {as_toml(item)}" for key, item in value.items())
        return f"{{{inner}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(as_toml(item) for item in value)}]"
    return repr(value)


def _toml_character(character: str) -> str:
    if ord(character) > 0xFFFF:
        return f"\\U{ord(character):08X}"
    return "\\u007F" if character == "\x7f" else json.dumps(character)[1:-1]
