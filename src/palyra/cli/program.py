"""Where the ``palyra`` program begins. Its own help is answered from a text that was made ahead; all else by click.

Importing click takes three times as long as starting Python, and help is what people ask for first.
"""

import os
import sys

# From here on click's text is the same, however wide the terminal is.
WIDTH = 80


def main() -> None:
    if sys.argv[1:] in (["--help"], ["-h"]) and "_PALYRA_COMPLETE" not in os.environ and columns() >= WIDTH:
        from palyra.cli.root_help import TEXT

        try:
            sys.stdout.write(TEXT)
            sys.stdout.flush()
            return
        except BrokenPipeError:
            # The reader went away: the program proper knows how to end then.
            pass
    from palyra.cli.main import main as program

    program()


def columns() -> int:
    """Of the terminal, as click finds it out."""
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH
    except (OSError, ValueError):
        return WIDTH
