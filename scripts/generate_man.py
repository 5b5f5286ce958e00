"""Writes docs/man from the programs' own help: a page for each program, and one for each noun of `palyra`.

`scripts/generate_reference.py` runs it too. With ``--check`` nothing is written; the exit status says whether the pages
on disk are what would be written.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from palyra.cli.browserd import browserd
from palyra.cli.main import root
from palyra.cli.workerd import workerd
from palyra.daemon.egressd import parser as egressd
from palyra.version import VERSION

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "man"
DAEMON = """The daemon as a service manager starts it: what `palyra up` starts, with its log on standard error. It takes
the options of palyra(1) that come before a command. It tells systemd when it is ready, that it is alive, and when it
stops. SIGTERM and SIGINT stop it in order: no new calls, running ones end or are cancelled, and the journal is
sealed."""
SEE_ALSO = ("palyra(1)", "palyrad(1)", "palyra-workerd(1)", "palyra-egressd(1)", "palyra-browserd(1)")


def pages() -> dict[str, str]:
    """Every page by the name of its file."""
    top = click.Context(root, info_name="palyra", color=False)
    found = {"palyra": _program(top, deep=False)}
    for name, command in _commands(top):
        found[f"palyra-{name}"] = _program(click.Context(command, info_name=name, parent=top, color=False))
    found["palyra-workerd"] = _program(click.Context(workerd, info_name="palyra-workerd", color=False))
    found["palyra-browserd"] = _program(click.Context(browserd, info_name="palyra-browserd", color=False))
    found["palyrad"] = _page(
        "palyrad", "the daemon of Palyra, for service managers", ["palyrad [OPTIONS]"], DAEMON, _options(top)
    )
    about, *_ = (egressd().description or "").split("\n\n")
    found["palyra-egressd"] = _page(
        "palyra-egressd", "the egress proxy of one worker", ["palyra-egressd [OPTIONS] COMMAND"], about, _parsed_help()
    )
    return {f"{name}.1": text for name, text in found.items()}


def _program(context: click.Context, *, deep: bool = True) -> str:
    command = context.command
    title = context.command_path.replace(" ", "-")
    help_text = command.help or ""
    first, _, rest = help_text.partition("\n\n")
    body = [*_options(context)]
    if isinstance(command, click.Group):
        body.append(".SH COMMANDS")
        for name, below in _commands(context):
            inner = click.Context(below, info_name=name, parent=context, color=False)
            body += _command(inner) if deep else [".TP", f".B {_roff(name)}", _roff(below.get_short_help_str(200))]
    usage = [f"{context.command_path} {' '.join(command.collect_usage_pieces(context))}"]
    return _page(title, " ".join(first.split()).rstrip("."), usage, rest or first, body)


def _command(context: click.Context) -> Iterator[str]:
    command = context.command
    pieces = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_roff(context.command_path)} {_roff(pieces)}"
    yield from _paragraphs(command.help or "")
    yield from _listed(context)
    if isinstance(command, click.Group):
        for name, below in _commands(context):
            yield from _command(click.Context(below, info_name=name, parent=context, color=False))


def _commands(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield name, command


def _options(context: click.Context) -> list[str]:
    return [".SH OPTIONS", *_listed(context)]


def _listed(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", f".B {_roff(record[0])}", _roff(" ".join(record[1].split())) or "\\&")


def _parsed_help() -> list[str]:
    """Return argparse's own text."""
    text = egressd().format_help()
    start = text.index("positional arguments") if "positional arguments" in text else 0
    return [".SH OPTIONS", ".nf", *(_roff(line) for line in text[start:].splitlines()), ".fi"]


def _page(title: str, about: str, usage: list[str], description: str, body: list[str]) -> str:
    others = [one for one in SEE_ALSO if one != f"{title}(1)"]
    lines = [
        '.\\" Written by scripts/generate_man.py; change the program, then run it again.',
        f'.TH "{title.upper()}" "1" "" "Palyra {VERSION}" "Palyra"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(about)}",
        ".SH SYNOPSIS",
        *(line for one in usage for line in (".nf", _roff(one), ".fi")),
        ".SH DESCRIPTION",
        *_paragraphs(description),
        *body,
        ".SH EXIT STATUS",
        "0 done, 1 failed, 2 usage, 3 denied, 4 needs approval, 5 limit or timeout, 6 not available.",
        ".SH SEE ALSO",
        _roff(", ".join(others)),
    ]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(one for one in re.split(r"\n\s*\n", text.strip()) if one.strip()):
        if number:
            yield ".PP"
        yield _roff(" ".join(paragraph.replace("\b", "").split()))


def _roff(text: str) -> str:
    """Text that the formatter takes as text."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: generate_man.py [--check]", file=sys.stderr)
        return 2
    wanted = pages()
    stale = [name for name, text in wanted.items() if not _is(FOLDER / name, text)]
    stale += [path.name for path in FOLDER.glob("*.1") if path.name not in wanted]
    if arguments:
        if stale:
            print(f"stale: {', '.join(sorted(stale))}; run scripts/generate_man.py", file=sys.stderr)
        return 1 if stale else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
