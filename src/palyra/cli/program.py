"""Where the ``palyra`` program begins."""

# As the program proper ends when it is interrupted.
_INTERRUPTED = 130


def main() -> None:
    try:
        from palyra.cli.main import main as program
    except KeyboardInterrupt:
        # Before anything was begun. Later the program proper says so itself.
        raise SystemExit(_INTERRUPTED) from None
    program()
