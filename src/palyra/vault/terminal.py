"""Asks a person for a passphrase, on the terminal and nowhere else."""

import getpass
import os

from palyra.secret import Secret
from palyra.vault.errors import PassphraseNeeded, PassphraseWeak
from palyra.vault.passphrase import NEW


def ask_passphrase(question: str) -> Secret:
    """Typed without an echo; a new one is typed twice."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        raise PassphraseNeeded("there is no terminal to ask for the vault's passphrase on") from None
    if question != NEW:
        return Secret(getpass.getpass("Passphrase of the vault: "))
    first = getpass.getpass("New passphrase of the vault: ")
    if first != getpass.getpass("Once more: "):
        raise PassphraseWeak("the two passphrases are not the same", hint="type it again")
    return Secret(first)
