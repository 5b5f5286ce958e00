"""The entry point of the ``palyra`` program."""

# The exit status of the program proper when it is interrupted.
_INTERRUPTED = 130


def main() -> None:
    try:
        from palyra.cli.main import main as program
    except KeyboardInterrupt:
        # Nothing has begun. Later the program proper reports it.
        raise SystemExit(_INTERRUPTED) from None
    program()
