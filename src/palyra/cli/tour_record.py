"""The end of the tour: the record of all of it is verified, and an edit of it is found."""

import sqlite3
from pathlib import Path

from palyra.cli.tour_scene import Steps, TourSurprised
from palyra.errors import PalyraError
from palyra.journal.sqlite import SqliteStore
from palyra.signing.ed25519 import Ed25519Verifier


def journal(steps: Steps, state: Path) -> None:
    verifiers = (Ed25519Verifier.from_pem_file(state / "signing.pub"),)
    database = state / "palyra.db"
    with SqliteStore.open_reader(database) as reader:
        report = reader.verify(verifiers)
    steps.note("the journal is verified", "allowed", f"{report.events} events, one chain, signed checkpoints")
    with sqlite3.connect(database) as attacker:
        for (name,) in attacker.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            attacker.execute(f'DROP TRIGGER "{name}"')
        attacker.execute("UPDATE events SET actor = 'agent:nobody' WHERE seq = 5")
    attacker.close()
    try:
        with SqliteStore.open_reader(database) as reader:
            reader.verify(verifiers)
    except PalyraError as error:
        steps.note(
            "somebody edits event 5 and verifies again", "refused", f"{error.code} at seq {error.details['seq']}"
        )
    else:
        raise TourSurprised("an edited journal was accepted")
