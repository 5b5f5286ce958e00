"""``palyra skill`` on a real embedded API: the group in skill.py, and skill_life, skill_review and skill_trust."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from fakes.command_line import CommandLine, command_line_in
from fakes.skill_harness import PUBLISHER, SKILL, archive, key, wat
from palyra.signing.ed25519 import Ed25519Signer


@pytest.fixture
def palyra(tmp_path: Path) -> CommandLine:
    return command_line_in(tmp_path)


@pytest.fixture
def signer(tmp_path: Path) -> Ed25519Signer:
    return Ed25519Signer.load_or_create(tmp_path / "acme.key")


def file(folder: Path, signer: Ed25519Signer, version: str = "1.0.0", **options: str) -> str:
    path = folder / f"notes-{version}.skill"
    path.write_bytes(archive(version, signer=signer, **options))
    return str(path)


def test_a_newcomer_gets_from_a_file_to_a_skill_in_use(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    path = file(tmp_path, signer)
    refused = palyra("skill", "install", path)
    assert refused.status == 3 and "skill.untrusted_publisher" in refused.err
    trusted = palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    assert trusted.out == f"acme may sign with {signer.key_id}\n"
    installed = palyra("skill", "install", path)
    assert installed.status == 0 and "quarantined" in installed.out and "nothing beyond computing" in installed.out
    # The command it prints is the one that approves.
    command = installed.out.strip().split("\n")[-1].split()
    assert command[:3] == ["palyra", "skill", "approve"]
    assert palyra(*command[1:]).out.startswith(f"{SKILL} 1.0.0 is approved")
    newer = file(tmp_path, signer, "1.1.0", capabilities='channels = ["a"]')
    review = palyra("skill", "install", newer).out
    assert "compared with  1.0.0" in review and "+ send messages to the channel a" in review
    listed = palyra("skill", "list").out.split("\n")
    assert listed[1].split()[:3] == [SKILL, "1.1.0", "quarantined"]
    assert listed[2].split()[:3] == [SKILL, "1.0.0", "approved"]
    shown = palyra("skill", "show", SKILL)
    assert "history" in shown.out and "skill.approved" in shown.out
    assert (
        palyra("skill", "show", SKILL, "--version", "1.1.0", "--json").document["data"]["versions"][0]["version"]
        == "1.1.0"
    )


def test_removed_versions_are_listed_only_when_all_are_asked_for(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    for version in ("1.0.0", "1.1.0", "1.2.0"):
        palyra("skill", "install", file(tmp_path, signer, version))
    assert palyra("skill", "list").err == ""
    palyra("skill", "remove", SKILL, "--version", "1.0.0")
    assert palyra("skill", "list").err == "1 removed version is left out; --all shows it\n"
    palyra("skill", "remove", SKILL, "--version", "1.1.0")
    listed = palyra("skill", "list")
    assert [line.split()[1] for line in listed.out.strip().split("\n")[1:]] == ["1.2.0"]
    assert listed.err == "2 removed versions are left out; --all shows them\n"
    everything = palyra("skill", "list", "--all")
    assert [line.split()[1:3] for line in everything.out.strip().split("\n")[1:]] == [
        ["1.2.0", "quarantined"],
        ["1.1.0", "removed"],
        ["1.0.0", "removed"],
    ]
    assert everything.err == ""
    palyra("skill", "remove", SKILL)
    gone = palyra("skill", "list", "--json")
    assert gone.document["data"] == {"skills": [], "removed_left_out": 3} and gone.err == ""
    whole = palyra("skill", "list", "--all", "--json").document["data"]
    assert len(whole["skills"][0]["versions"]) == 3 and whole["removed_left_out"] == 0


def test_a_review_says_what_a_skill_will_really_get(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[wasm]\nmax_fuel = 20_000_000\n")
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    path = file(tmp_path, signer, capabilities="quotas = { fuel_budget = 50_000_000, max_memory_bytes = 65_536 }")
    said = "20000000, where it asks to have the quota fuel_budget = 50000000 (setting wasm.max_fuel)"
    installed = palyra("skill", "install", path)
    assert said in installed.out and installed.out.count("where it asks to") == 1
    assert said in palyra("skill", "show", SKILL).out
    (version,) = palyra("skill", "show", SKILL, "--json").document["data"]["versions"]
    assert version["gets_less"] == [
        {"asked": "have the quota fuel_budget = 50000000", "gets": "20000000", "setting": "wasm.max_fuel"}
    ]


def test_an_approval_by_digest_says_what_a_skill_will_really_get(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("[wasm]\nmax_fuel = 20_000_000\nmemory_bytes = 65_536\n")
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    quotas = "quotas = { fuel_budget = 50_000_000, max_memory_bytes = 131_072 }"
    installed = palyra("skill", "install", file(tmp_path, signer, capabilities=quotas), "--json")
    digest = installed.document["data"]["digest"]
    approved = palyra("skill", "approve", SKILL, "1.0.0", "--digest", digest)
    assert approved.out == f"{SKILL} 1.0.0 is approved ({digest})\n"
    assert approved.err == (
        f"warning: the settings give {SKILL} less than it asks for:\n"
        "  20000000, where it asks to have the quota fuel_budget = 50000000 (setting wasm.max_fuel)\n"
        "  65536, where it asks to have the quota max_memory_bytes = 131072 (setting wasm.memory_bytes)\n"
    )
    # As a document, too.
    palyra("skill", "quarantine", SKILL)
    again = palyra("skill", "approve", SKILL, "1.0.0", "--digest", digest, "--json").document["data"]
    assert [one["setting"] for one in again["gets_less"]] == ["wasm.max_fuel", "wasm.memory_bytes"]
    # No warning for one that gets all it asks for.
    newer = palyra("skill", "install", file(tmp_path, signer, "1.1.0"), "--json").document["data"]["digest"]
    assert palyra("skill", "approve", SKILL, "1.1.0", "--digest", newer).err == ""


def test_a_review_says_that_a_skill_will_not_run_at_all(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    (tmp_path / "config.toml").write_text("[wasm]\nenabled = false\n")
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    said = "nothing at all while skills are switched off, where it asks to run (setting wasm.enabled)"
    assert said in palyra("skill", "install", file(tmp_path, signer)).out
    assert said in palyra("skill", "show", SKILL).out


def test_the_rest_of_a_life(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    schema = '\n[operator.configuration]\nschema = { type = "object", properties = { n = { type = "integer" } } }\n'
    for version in ("1.0.0", "1.1.0"):
        installed = palyra("skill", "install", file(tmp_path, signer, version, more=schema), "--json").document["data"]
        assert palyra("skill", "approve", SKILL, version, "--digest", installed["digest"]).status == 0
    assert "1.0.0 is approved" in palyra("skill", "rollback", SKILL, "--reason", "slow").out
    assert "disabled" in palyra("skill", "disable", SKILL).out
    assert "approved" in palyra("skill", "enable", SKILL).out
    assert palyra("skill", "enable", SKILL).status == 2
    assert "quarantined" in palyra("skill", "quarantine", SKILL, "--version", "1.0.0").out
    configured = palyra("skill", "configure", SKILL, '{"n": 2}', "--version", "1.1.0", "--json")
    assert configured.document["data"] == {"configuration": {"n": 2}}
    assert palyra("skill", "configure", SKILL, '{"n": "x"}').status == 2
    assert palyra("skill", "configure", SKILL, "[]").status == 2
    assert "1.0.0 is removed" in palyra("skill", "remove", SKILL, "--version", "1.0.0").out
    assert "remove acme.notes" in palyra("skill", "purge", SKILL).err
    assert palyra("skill", "remove", SKILL, "--json").document["data"]["removed"][0]["version"] == "1.1.0"
    assert "0 values with 0 bytes were erased" in palyra("skill", "purge", SKILL).out
    revoked = palyra("skill", "trust", "revoke", signer.key_id, "--reason", "lost")
    assert revoked.out == f"{signer.key_id} is revoked\n"


def test_approving_needs_a_digest_or_a_person(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    palyra("skill", "install", file(tmp_path, signer))
    ended = palyra("skill", "approve", SKILL, "1.0.0")
    assert ended.status == 2 and "cli.not_reviewed" in ended.err
    assert palyra("skill", "approve", SKILL, "1.0.0", "--digest", "0" * 64).status == 2


def test_a_person_at_a_terminal_sees_the_review_and_says_yes(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    palyra("skill", "install", file(tmp_path, signer))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_, **__: False)
    refused = palyra("skill", "approve", SKILL, "1.0.0")
    assert refused.status == 3 and "it stays in quarantine" in refused.err
    monkeypatch.setattr("click.confirm", lambda *_, **__: True)
    ended = palyra("skill", "approve", SKILL, "1.0.0")
    assert "asks to" in ended.err and "is approved" in ended.out


def test_a_review_shows_every_word_that_a_model_or_an_operator_reads(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    more = (
        'idempotent = true\n[operator]\nsummary = "Needs the secret token."\n'
        "[operator.configuration]\nschema = '"
        '{"type": "object", "properties": {"prefix": {"description": "CONFIGURED"}}}'
        "'\n"
    )
    archive_of = file(tmp_path, signer, more=more)
    for said in (palyra("skill", "install", archive_of).out, palyra("skill", "show", SKILL).out):
        for words in ("Adds a note.", "may be repeated", "Needs the secret token.", "CONFIGURED", '"type"'):
            assert words in said, words
    missing = palyra("skill", "show", SKILL, "--version", "3.0.0")
    assert missing.status == 2 and "has no version 3.0.0" in missing.err


def test_a_publisher_that_no_manifest_could_name_is_told_how_one_is_spelled(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    refused = palyra("skill", "trust", "add", "Acme Inc", str(tmp_path / "acme.pub"))
    assert (refused.status, "skill.bad_name" in refused.err) == (2, True)
    assert "a publisher is lower-case letters, digits, dots and dashes" in refused.err


def test_a_further_key_of_a_publisher_is_told_of(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    first = palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    again = palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    assert first.err == again.err == "", "one key, said twice, is one key"
    Ed25519Signer.load_or_create(tmp_path / "other.key")
    somebody = palyra("skill", "trust", "add", "somebody", str(tmp_path / "other.pub"))
    assert somebody.err == "", "another publisher's keys are not theirs"
    second = palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "other.pub"))
    assert second.status == 0 and f"{PUBLISHER} has 2 keys now" in second.err
    # The command it prints is the one that ends the old key.
    command = second.err.strip().split("\n")[-1].split()
    assert command == ["palyra", "skill", "trust", "remove", PUBLISHER, signer.key_id]
    assert palyra(*command[1:]).status == 0
    once_more = palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "other.pub"), "--json")
    assert once_more.err == "" and once_more.document["data"]["other_keys"] == []


def test_verify_without_a_daemon_and_without_a_list(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    path, public = file(tmp_path, signer), str(tmp_path / "acme.pub")
    verified = palyra("skill", "verify", path, "--key", public, "--json").document["data"]
    assert (verified["key_id"], verified["trust"], verified["skill_id"]) == (signer.key_id, "key", SKILL)
    assert not palyra.state_dir.exists()
    Ed25519Signer.load_or_create(tmp_path / "other.key")
    other = palyra("skill", "verify", path, "--key", str(tmp_path / "other.pub"))
    assert other.status == 3 and "cli.other_key" in other.err
    unknown = palyra("skill", "verify", path)
    assert unknown.status == 3 and "skill.untrusted_publisher" in unknown.err
    palyra("skill", "trust", "add", PUBLISHER, public)
    assert palyra("skill", "verify", path, "--json").document["data"]["trust"] == "allowlisted"
    changed = bytearray(Path(path).read_bytes())
    changed[100] ^= 1
    Path(path).write_bytes(changed)
    assert palyra("skill", "verify", path, "--key", public).status == 1
    assert palyra("skill", "verify", str(tmp_path / "missing")).status == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("install", "FILE"), "`palyra skill sign` makes it"),
        (("verify", "FILE"), "`palyra skill sign` makes it"),
        (("audit", "FILE"), "`palyra skill sign` makes it"),
        (("audit", "./gone.skill"), "`palyra skill sign` makes it"),
        (("audit", "gone.skill"), "or a skill that `palyra skill list` shows"),
        (("verify", "ARCHIVE", "--key", "FILE"), "`palyra skill keygen FILE` writes it"),
        (("trust", "add", "acme", "FILE"), "`palyra skill keygen FILE` writes it"),
        (("trust", "rotate", "FILE"), "`palyra skill trust hand-over` printed"),
    ],
)
def test_a_file_that_is_not_there_is_told_of_with_what_belongs_there(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path, words: tuple[str, ...], hint: str
) -> None:
    given = {"FILE": str(tmp_path / "gone.skill"), "ARCHIVE": file(tmp_path, signer)}
    refused = palyra("skill", *(given.get(word, word) for word in words))
    assert refused.status in (2, 6) and "gone.skill" in refused.err
    assert hint in refused.err and "JSON" not in refused.err and "/v1" not in refused.err


def test_audit_of_a_file_and_of_a_skill(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    path = file(tmp_path, signer, capabilities='channels = ["a"]')
    clean = palyra("skill", "audit", path)
    assert clean.status == 0 and "capability-unused skill.toml:8" in clean.out
    bad = tmp_path / "bad.skill"
    bad.write_bytes(archive(signer=signer, modules={"main.wasm": wat("(module)")}))
    failed = palyra("skill", "audit", str(bad), "--json")
    assert failed.status == 3 and failed.document["data"]["findings"][0]["id"] == "entrypoint-missing"
    sarif = json.loads(palyra("skill", "audit", str(bad), "--format", "sarif").out)
    assert sarif["version"] == "2.1.0" and sarif["runs"][0]["results"][0]["ruleId"] == "entrypoint-missing"
    palyra("skill", "install", path)
    assert "capability-unused" in palyra("skill", "audit", SKILL).out
    assert palyra("skill", "audit", SKILL, "--version", "9.0.0").status == 2
    assert palyra("skill", "audit", "nobody").status == 2


def test_a_publisher_hands_over_to_a_new_key(palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    new = Ed25519Signer.load_or_create(tmp_path / "new.key")
    statement = palyra("skill", "trust", "hand-over", PUBLISHER, str(tmp_path / "acme.key"), str(tmp_path / "new.pub"))
    (tmp_path / "statement.json").write_text(statement.out.strip())
    assert palyra("skill", "trust", "rotate", str(tmp_path / "statement.json")).out.startswith("acme signs with")
    assert palyra("skill", "trust", "rotate", str(tmp_path / "statement.json")).status == 3
    listed = palyra("skill", "trust", "list", "--json").document["data"]["keys"]
    assert [(one["key_id"], one["state"]) for one in listed] == [
        (signer.key_id, "retired"),
        (new.key_id, "active"),
    ]
    removed = palyra("skill", "trust", "remove", PUBLISHER, new.key_id)
    assert removed.out == f"{new.key_id} is not acme's any more\n"
    assert "retired" in palyra("skill", "trust", "list").out


def test_a_key_that_cannot_be_read_is_listed_with_its_cause_and_how_to_clear_it(
    palyra: CommandLine, signer: Ed25519Signer, tmp_path: Path
) -> None:
    palyra("skill", "trust", "add", PUBLISHER, str(tmp_path / "acme.pub"))
    with contextlib.closing(sqlite3.connect(palyra.state_dir / "palyra.db")) as database, database:
        database.execute("UPDATE skill_keys SET state = 'nonsense'")
    # Found and marked by the first, and still reported with its cause to the second.
    for _ in range(2):
        refused = palyra("skill", "install", file(tmp_path, signer))
        assert refused.status == 1 and "'nonsense' is not a valid KeyState" in refused.err
    listed = palyra("skill", "trust", "list").out
    assert [PUBLISHER, signer.key_id, "unreadable"] in [line.split() for line in listed.split("\n")]
    assert f"unreadable: {signer.key_id} of acme: 'nonsense' is not a valid KeyState" in listed
    data = palyra("skill", "trust", "list", "--json").document["data"]
    assert data["keys"] == [] and data["unreadable"][0]["problem"] == "'nonsense' is not a valid KeyState"
    assert "palyra skill trust remove" in data["unreadable"][0]["remedy"]
    # The command it prints is the one that clears it.
    command = listed.strip().split("\n")[-1].split()
    assert command[:4] == ["palyra", "skill", "trust", "remove"] and palyra(*command[1:]).status == 0
    assert "unreadable" not in palyra("skill", "trust", "list").out


def test_names_from_an_archive_cannot_steer_the_terminal(palyra: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "x.skill"
    path.write_bytes(archive(signer=key("thief")))
    ended = palyra("skill", "show", "\x1b[31mred")
    assert "\x1b" not in ended.err + ended.out


def test_a_place_that_cannot_be_used_is_no_fault_of_the_program(palyra: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = palyra("skill", "new", "x", "--lang", "wat", "--dir", str(tmp_path / "file" / "x"))
    assert ended.status == 1 and "cli.file_unusable" in ended.err and "Not a directory" in ended.err
