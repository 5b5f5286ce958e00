"""Waiting for events that any process commits, by watching the database's files instead of asking them in a loop."""

from collections.abc import Iterator
from pathlib import Path
from threading import Event as Signal

from palyra.journal.event import Event
from palyra.journal.sqlite_reader import JournalReader

# Writes that come together are one wake-up; a watch that missed something is made good after this long.
_GATHER_MS = 50
_LOOK_AGAIN_MS = 1_000
_PAGE = 500


def follow(
    reader: JournalReader,
    after: int,
    *,
    run: str = "",
    call: str = "",
    kind: str = "",
    stop: Signal | None = None,
) -> Iterator[Event]:
    """Events after ``after`` as they are committed, until ``stop`` is set."""
    from watchfiles import watch

    names = {reader.path.name, f"{reader.path.name}-wal"}
    seen, version = after, -1
    changes = watch(
        reader.path.parent,
        watch_filter=lambda _change, path: Path(path).name in names,
        debounce=_GATHER_MS,
        step=_GATHER_MS,
        rust_timeout=_LOOK_AGAIN_MS,
        yield_on_timeout=True,
        stop_event=stop,
        recursive=False,
    )
    while True:
        current = reader.data_version()
        while current != version:
            # Read until a page is not full; only then is this version of the data used up.
            page = reader.events_since(seen, _PAGE, run=run, call=call, kind=kind)
            yield from page
            if page:
                seen = page[-1].seq
            if len(page) < _PAGE:
                version = current
        if next(changes, None) is None:
            return
