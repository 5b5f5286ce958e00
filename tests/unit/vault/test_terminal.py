"""The question to a person, on a terminal that this test plays."""

import os
import pty
import subprocess
import sys

import pytest

from palyra.vault.key_file import ask_passphrase
from palyra.vault.key_source import PassphraseNeeded

ASK = """
from palyra.vault.key_file import ask_passphrase
from palyra.errors import PalyraError
import sys
try:
    print("GOT " + ask_passphrase(sys.argv[1]).reveal()[::-1])
except PalyraError as error:
    print("CODE " + error.code)
"""


def converse(question: str, *answers: str) -> str:
    """What the program and its terminal said."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ASK, question])
    said = b""
    try:
        for number, answer in enumerate(answers, start=1):
            while said.count(b": ") < number:
                said += os.read(terminal, 1024)
            os.write(terminal, answer.encode() + b"\n")
        while chunk := os.read(terminal, 1024):
            said += chunk
    except OSError:
        pass
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)
    return said.decode()


def test_it_is_typed_without_an_echo() -> None:
    said = converse("open", "typed words here")
    assert "GOT ereh sdrow depyt" in said and "typed words" not in said


def test_a_new_one_is_typed_twice() -> None:
    assert "GOT ereh sdrow depyt" in converse("new", "typed words here", "typed words here")
    assert "CODE vault.passphrase_weak" in converse("new", "typed words here", "other words")


def test_without_a_terminal_nothing_is_read() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ASK, "open"],
        input="from stdin\n",
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.stdout == "CODE vault.passphrase_needed\n"


def test_the_refusal_is_the_same_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_terminal(*_: object) -> int:
        raise OSError

    monkeypatch.setattr(os, "open", no_terminal)
    with pytest.raises(PassphraseNeeded):
        ask_passphrase("open")
