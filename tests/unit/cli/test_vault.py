import io
import sys

import pytest

from fakes.command_line import command_line_in
from palyra.cli.commands.credentials import ValueMissing, _text


@pytest.fixture
def cli(tmp_path):
    return command_line_in(tmp_path)


def typed(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_put_list_and_delete_without_a_daemon(cli, monkeypatch):
    typed(monkeypatch, b"value-of-mine\n")
    put = cli("vault", "put", "global/k", "--json")
    assert put.document["data"]["version"] == 1 and "value-of-mine" not in put.out
    listed = cli("vault", "list")
    assert "global/k" in listed.out and listed.out.startswith("secret")
    assert cli("vault", "delete", "global/k").out == "global/k is destroyed\n"
    gone = cli("vault", "delete", "global/k", "--json")
    assert (gone.status, gone.document["error"]["code"]) == (2, "vault.unknown_secret")


def test_rotate_says_what_it_did(cli, monkeypatch):
    assert cli("vault", "rotate").status == 2
    typed(monkeypatch, b"x")
    cli("vault", "put", "global/k")
    assert "1 versions are now under kek:" in cli("vault", "rotate").out
    assert cli("vault", "rotate", "--to", "moon").status == 2


def test_a_prompt_is_used_at_a_terminal(cli, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", lambda prompt: {"Value of global/k: ": "asked"}[prompt])
    assert cli("vault", "put", "global/k").status == 0


def test_a_value_on_the_command_line_is_refused_and_not_repeated(cli):
    ended = cli("vault", "put", "global/k", "my-value", "--json")
    assert ended.document["error"]["code"] == "cli.value_on_command_line"
    assert "my-value" not in ended.out + ended.err


def test_two_sources_of_a_value_exclude_each_other(cli, tmp_path):
    (tmp_path / "v").write_text("x")
    assert cli("vault", "put", "global/k", "--file", str(tmp_path / "v"), "--fd", "0").status == 2


@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"v\n", "v"), (b"v\r\n", "v"), (b"v", "v"), (b"a\nb\n", "a\nb\n"), (b"v \n", "v "), ("ü\n".encode(), "ü")],
)
def test_the_line_end_after_one_line_is_not_part_of_it(raw, text):
    assert _text(raw) == text


@pytest.mark.parametrize("raw", [b"", b"\n", b"\r\n", b"\xffsecret"])
def test_what_is_no_text_is_refused_without_being_shown(raw):
    with pytest.raises(ValueMissing) as caught:
        _text(raw)
    assert "secret" not in caught.value.message


def test_an_unfinished_rotation_is_told(cli, monkeypatch):
    typed(monkeypatch, b"x")
    cli("vault", "put", "global/k")
    unfinished = {"secrets": 1, "key_id": "kek:2", "key_source": "file", "rotating_from": "kek:1", "waiting": 1}
    monkeypatch.setattr("msgspec.to_builtins", lambda _: unfinished)
    assert "a rotation was not finished: 1 versions" in cli("vault", "list").err
