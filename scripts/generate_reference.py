"""Writes docs/reference and docs/man from the program itself.

The pages cover help, errors, settings, tools, metrics, protocols, limits and bars. With ``--check`` nothing is written.
The exit status says whether the pages on disk are fresh.
"""

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import generate_man
import msgspec
import reference_of_limits
import reference_of_parts
from msgspec import Meta

import palyra
from palyra.cli.command_table import CommandMissing
from palyra.cli.commands.config import as_toml
from palyra.cli.main import EXIT_INTERRUPTED, Interrupted, root
from palyra.config.setting_types import SettingInfo, known_settings
from palyra.daemon.settings import Settings
from palyra.errors import PalyraError

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
WIDTH = 100
GENERATED = "<!-- Written by scripts/generate_reference.py; change the program, then run it again. -->"
BRANCHES = {
    "Failed": "the work was attempted and did not succeed",
    "InvalidInput": "the caller must change the request",
    "Denied": "policy says no",
    "NeedsApproval": "policy says: ask a person first",
    "LimitExceeded": "a named limit or a deadline was reached",
    "Unavailable": "something this needs is not there now",
    "Tampered": "evidence does not verify",
    "NotProven": "evidence is whole, and nothing signed covers it",
}
ENDINGS_OF_THEIR_OWN = {Interrupted.code: EXIT_INTERRUPTED}
KINDS = {int: "integer", float: "number", str: "string", bool: "boolean"}


def cli_page() -> str:
    lines = [
        "# Command line",
        GENERATED,
        "",
        "`--json` may stand before the noun or after the verb. Data goes to stdout, prose to stderr.",
    ]
    top = click.Context(root, info_name="palyra", terminal_width=WIDTH, color=False)
    for context in _contexts(top):
        lines += ["", f"## `{context.command_path}`", "", "```text", context.get_help().rstrip(), "```"]
    return "\n".join(lines) + "\n"


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        try:
            command = group.get_command(context, name)
        except CommandMissing:
            print(f"reference: the command {name!r} of the table has no module yet", file=sys.stderr)
            continue
        if command is not None and not command.hidden:
            yield from _contexts(click.Context(command, info_name=name, parent=context, color=False))


def errors_page() -> str:
    _import_everything()
    lines = ["# Error codes", GENERATED, ""]
    lines.append("The same code appears in the API, the journal, the metrics and on the command line.")
    leaves = [leaf for leaf in PalyraError.registry.values() if leaf.__module__.partition(".")[0] == "palyra"]
    for branch, meaning in BRANCHES.items():
        members = sorted((leaf for leaf in leaves if _branch_of(leaf) == branch), key=lambda leaf: leaf.code)
        if not members:
            continue
        lines += ["", f"## {branch}: {meaning}", "", "| code | exit | HTTP | hint |", "|---|---|---|---|"]
        for leaf in members:
            status = ENDINGS_OF_THEIR_OWN.get(leaf.code, int(leaf.exit_code))
            lines.append(f"| `{leaf.code}` | {status} | {leaf.http_status} | {_cell(leaf.hint)} |")
    return "\n".join(lines) + "\n"


def _import_everything() -> None:
    for module in pkgutil.walk_packages(palyra.__path__, "palyra."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)


def _branch_of(leaf: type[PalyraError]) -> str:
    return next(base.__name__ for base in leaf.__mro__ if base.__name__ in BRANCHES)


def configuration_page() -> str:
    lines = [
        "# Configuration",
        GENERATED,
        "",
        "Settings come from one TOML file (`--config`, else `PALYRA_CONFIG`, else `palyra/config.toml` in the XDG",
        "configuration folder), then from the variables below, then from flags: the later one wins, and replaces lists",
        "and tables as a whole. A variable holds a TOML value, plain text, or a list separated by commas. Unknown keys",
        "are errors. `palyra config show --origin` tells where each value came from. A daemon reads its settings when",
        "it starts: start it again after a change. Policies it takes up while it runs.",
        "",
        "State lives in `--state-dir`, else `PALYRA_STATE_DIR`, else `palyra` in the XDG state folder.",
    ]
    section = ""
    for info in known_settings(Settings).values():
        if info.section != section:
            section = info.section
            lines += [
                "",
                f"## `[{section}]`",
                "",
                "| key | meaning | type | default | variable |",
                "|---|---|---|---|---|",
            ]
        default = _cell(f"`{as_toml(info.default)}`")
        row = (f"`{info.key or 'NAME'}`", _cell(info.description), _cell(_kind(info)), default, f"`{info.env_name}`")
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _kind(info: SettingInfo) -> str:
    bare, metas = info.type.__origin__, [meta for meta in info.type.__metadata__ if isinstance(meta, Meta)]
    bounds = [
        f"{words} {getattr(meta, name):,}"
        for name, words in (("gt", "more than"), ("ge", "at least"), ("le", "at most"))
        for meta in metas
        if getattr(meta, name) is not None
    ]
    return ", ".join([_name_of(bare), *bounds])


def _name_of(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return _name_of(kind.__origin__)
    if get_origin(kind) is tuple:
        member = get_args(kind)[0]
        of_tables = isinstance(member, type) and issubclass(member, msgspec.Struct)
        return f"list of {_name_of(member)}" if of_tables else "list of strings"
    if get_origin(kind) is dict:
        return f"table of {_name_of(get_args(kind)[1])}"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(f"`{word}`" for word in get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "tables with " + ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
    return KINDS[kind]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")


PAGES = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "configuration.md": configuration_page,
    "tools.md": lambda: reference_of_parts.tools_page(GENERATED),
    "metrics.md": lambda: reference_of_parts.metrics_page(GENERATED),
    "protos.md": lambda: reference_of_parts.protos_page(GENERATED),
    "limits.md": lambda: reference_of_limits.limits_page(GENERATED),
    "protected-names.md": lambda: reference_of_parts.protected_names_page(GENERATED),
    "performance-bars.md": lambda: reference_of_limits.performance_bars_page(GENERATED),
}


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: generate_reference.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments:
            REFERENCE.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if arguments and stale:
        print(f"stale: {', '.join(stale)}; run scripts/generate_reference.py", file=sys.stderr)
        return 1
    # The manual is made from the same help texts.
    return generate_man.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
