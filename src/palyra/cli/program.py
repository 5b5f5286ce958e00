"""Where the ``palyra`` program begins. Its own help and version are texts that were made ahead; all else is click's.

Importing click takes three times as long as starting Python, and help is what people ask for first.
"""

import os
import sys

# From here on click's text is the same, however wide the terminal is.
WIDTH = 80
# As the program proper ends then.
_INTERRUPTED = 130


def main() -> None:
    text = "" if "_PALYRA_COMPLETE" in os.environ else made_ahead(sys.argv[1:])
    if text:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        except BrokenPipeError:
            # The reader went away: the program proper knows how to end then.
            pass
    try:
        from palyra.cli.main import main as program
    except KeyboardInterrupt:
        # Before anything was begun. Later the program proper says so itself.
        raise SystemExit(_INTERRUPTED) from None
    program()


def made_ahead(arguments: list[str]) -> str:
    """The answer to this command line where it is the same for everybody, or nothing."""
    if arguments in (["--help"], ["-h"]) and columns() >= WIDTH:
        from palyra.cli.root_help import TEXT

        return TEXT
    if arguments == ["--version"]:
        from palyra.version import VERSION

        return f"palyra {VERSION}\n"
    return ""


def columns() -> int:
    """Of the terminal, as click finds it out."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH
