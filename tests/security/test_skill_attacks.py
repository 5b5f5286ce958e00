"""Attacks on skills: every way of tampering with an archive, with trust, and with what was approved."""

import io
import os
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fakes.skill_harness import (
    ACTOR,
    ECHO,
    PUBLISHER,
    SKILL,
    SkillHarness,
    archive,
    artifact,
    entries,
    key,
    manifest,
    wat,
)
from palyra.errors import PalyraError
from palyra.limits import MIB
from palyra.signing.ed25519 import Ed25519Verifier
from palyra.skills.package.artifact import (
    ArchiveTooLarge,
    BadEntry,
    MalformedArchive,
    pack_artifact,
    read_artifact,
    write_archive,
)
from palyra.skills.registry.archives import ArtifactChanged
from palyra.skills.registry.records import DigestMismatch, NotRunnable, RecordChanged, VersionReused
from palyra.skills.registry.registry import SkillRegistry
from palyra.skills.trust.findings import AuditFailed
from palyra.skills.trust.publisher_keys import (
    Downgrade,
    KeyNotThePublishers,
    KeyRevoked,
    SkillIdTaken,
    UntrustedPublisher,
    make_rotation,
)
from palyra.skills.trust.signature import SignatureMismatch, Unsigned, sign_artifact, verify_signature

of = Ed25519Verifier.from_public_bytes
LOCAL = 30
CENTRAL = 46
END = 22


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[SkillHarness]:
    opened = SkillHarness(tmp_path / "state")
    yield opened
    opened.close()


def parts_of(raw: bytes) -> dict[str, bytes]:
    skill = read_artifact(raw)
    return {**dict(skill.signed_entries()), "signature.json": skill.signature or b""}


async def refused(harness: SkillHarness, raw: bytes, *codes: str) -> None:
    """Neither installed nor kept, and on record."""
    registry = harness.registry()
    await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
    with pytest.raises(PalyraError) as refusal:
        await registry.install(raw, actor=ACTOR)
    assert not codes or refusal.value.code in codes, refusal.value.code
    assert not harness.folder.exists() or not list(harness.folder.iterdir())
    assert await registry.active_modules(actor=ACTOR) == ()
    assert harness.events("skill.refused")[-1][1]["code"] == refusal.value.code


# ---- the archive ------------------------------------------------------------------------------------------------


@pytest.mark.promise("P-skill-origin")
def test_no_single_flipped_bit_of_an_archive_gets_through() -> None:
    """Every byte of headers, names, manifest, module, statements, signature and directory."""
    good = archive()
    survivors = []
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        try:
            verify_signature(read_artifact(bytes(bad)), of)
        except PalyraError:
            continue
        survivors.append(at)
    assert survivors == []


def test_no_cut_of_an_archive_gets_through() -> None:
    good = archive()
    for at in range(len(good)):
        with pytest.raises(PalyraError):
            read_artifact(good[:at])


@pytest.mark.parametrize("name", sorted(parts_of(archive(assets={"a.txt": b"text"}))))
async def test_each_part_changed_with_the_archive_made_whole_again(harness: SkillHarness, name: str) -> None:
    parts = parts_of(archive(assets={"a.txt": b"text"}))
    parts[name] = parts[name][:-2] + b"#" + parts[name][-1:] if name != "skill.toml" else parts[name] + b"# more\n"
    await refused(harness, write_archive(parts))


@pytest.mark.parametrize("name", ["assets/extra.txt", "modules/extra.wasm"])
async def test_extra_unsigned_files(harness: SkillHarness, name: str) -> None:
    await refused(harness, write_archive({**parts_of(archive()), name: wat(ECHO)}), "skill.signature_mismatch")


def doubled(links: int) -> dict[str, Any]:
    parts: dict[str, Any] = {"a0": {"type": "string"}}
    for link in range(1, links + 1):
        parts[f"a{link}"] = {"allOf": [{"$ref": f"#/$defs/a{link - 1}"}] * 2}
    return {"type": "object", "$defs": parts, "properties": {"x": {"$ref": f"#/$defs/a{links}"}}}


@pytest.mark.parametrize(
    "schema",
    [doubled(60), {"allOf": [{"pattern": f"\\pL{{10{at}}}0"} for at in range(200)]}],
    ids=["references", "patterns"],
)
async def test_a_schema_that_would_take_for_ever_stops_nothing(harness: SkillHarness, schema: dict[str, Any]) -> None:
    """It is read before any signature is looked at, by whoever audits what a stranger gave him."""
    text = manifest().decode() + f"\n[operator.configuration]\nschema = '{msgspec.json.encode(schema).decode()}'\n"
    parts = {**entries(), "skill.toml": (text + """defaults = '{"x": "s"}'\n""").encode()}
    await refused(harness, write_archive(parts), "skill.malformed_manifest")


@pytest.mark.parametrize("name", sorted(parts_of(archive(assets={"a.txt": b"text"}))))
async def test_missing_files(harness: SkillHarness, name: str) -> None:
    parts = parts_of(archive(assets={"a.txt": b"text"}))
    del parts[name]
    await refused(harness, write_archive(parts), "skill.bad_entry", "skill.unsigned", "skill.signature_mismatch")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("assets/a.txt", "assets/b.txt"),
        ("modules/main.wasm", "modules/Main.wasm"),
        ("sbom.cdx.json", "SBOM.cdx.json"),
        ("assets/a.txt", "modules/a.wasm"),
        ("skill.toml", "assets/skill.toml"),
    ],
)
async def test_renamed_files(harness: SkillHarness, old: str, new: str) -> None:
    parts = parts_of(archive(assets={"a.txt": b"text"}))
    parts[new] = parts.pop(old)
    await refused(harness, write_archive(parts), "skill.bad_entry", "skill.signature_mismatch")


async def test_contents_of_two_files_exchanged(harness: SkillHarness) -> None:
    parts = parts_of(archive(assets={"a": b"1", "b": b"2"}))
    parts["assets/a"], parts["assets/b"] = parts["assets/b"], parts["assets/a"]
    await refused(harness, write_archive(parts), "skill.signature_mismatch")


@pytest.mark.parametrize(
    "twin", ["assets/A.txt", "assets/a.TXT", "assets/\u0430.txt", "assets/a\u0301.txt", "assets/ａ.txt"]
)
def test_twins_by_case_or_unicode(twin: str) -> None:
    """Even where the publisher has signed them: which of the two is meant would depend on the reader."""
    with pytest.raises(BadEntry):
        pack_artifact({**entries(assets={"a.txt": b"x"}), twin: b"y"})


def raw_local(name: bytes, data: bytes, **fields: int) -> bytes:
    values = {
        "needed": 20, "flags": 0, "method": 0, "time": 0, "date": 0x21, "crc": zlib.crc32(data),
        "packed": len(data), "size": len(data), "name": len(name), "extra": 0, **fields,
    }  # fmt: skip
    return struct.pack("<4sHHHHHIIIHH", b"PK\x03\x04", *values.values()) + name + data


def raw_central(name: bytes, data: bytes, at: int, **fields: int) -> bytes:
    values = {
        "made": (3 << 8) | 20, "needed": 20, "flags": 0, "method": 0, "time": 0, "date": 0x21, "crc": zlib.crc32(data),
        "packed": len(data), "size": len(data), "name": len(name), "extra": 0, "comment": 0, "disk": 0, "internal": 0,
        "external": 0o100644 << 16, "offset": at, **fields,
    }  # fmt: skip
    return struct.pack("<4sHHHHHHIIIHHHHHII", b"PK\x01\x02", *values.values()) + name


def raw_end(count: int, size: int, at: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, count, count, size, at, len(comment)) + comment


def built(
    parts: dict[str, bytes],
    *,
    local: Callable[[str], dict[str, int]] = lambda name: {},
    central: Callable[[str], dict[str, int]] = lambda name: {},
) -> bytes:
    body, directory = b"", b""
    for name in sorted(parts):
        directory += raw_central(name.encode(), parts[name], len(body), **central(name))
        body += raw_local(name.encode(), parts[name], **local(name))
    return body + directory + raw_end(len(parts), len(directory), len(body))


def test_the_builder_of_these_attacks_builds_the_real_thing() -> None:
    assert built(parts_of(archive())) == archive()


def only(target: str, **fields: int) -> Callable[[str], dict[str, int]]:
    return lambda name: fields if name == target else {}


ODD_FIELDS = [
    *(("local", {"flags": bit}) for bit in (0x1, 0x8, 0x40, 0x800, 0x2000)),
    *(("central", {"flags": bit}) for bit in (0x1, 0x8, 0x800)),
    ("local", {"method": 8}),
    ("central", {"method": 8}),
    ("local", {"crc": 0}),
    ("central", {"crc": 0}),
    ("local", {"time": 1}),
    ("central", {"date": 0x5021}),
    ("central", {"size": 1}),
    ("central", {"packed": 1}),
    ("local", {"packed": 0xFFFFFFFF, "size": 0xFFFFFFFF}),
    ("central", {"packed": 0xFFFFFFFF, "size": 0xFFFFFFFF}),
    ("central", {"offset": 0xFFFFFFFF}),
    ("central", {"offset": 0}),
    ("central", {"external": 0o120777 << 16}),
    ("central", {"external": 0o104755 << 16}),
    ("central", {"external": 0x10}),
    ("central", {"disk": 1}),
    ("central", {"made": 0}),
    ("central", {"needed": 45}),
    ("central", {"internal": 1}),
]


@pytest.mark.promise("P-skill-origin")
@pytest.mark.parametrize(("where", "fields"), ODD_FIELDS, ids=str)
async def test_headers_that_lie_or_disagree(harness: SkillHarness, where: str, fields: dict[str, int]) -> None:
    """Encryption, sizes told later, links and modes, ZIP64 marks, other methods, other offsets: in either header."""
    await refused(
        harness, built(parts_of(archive()), **{where: only("skill.toml", **fields)}), "skill.malformed_archive"
    )


def directory_at(raw: bytes) -> int:
    return int.from_bytes(raw[-6:-2], "little")


@pytest.mark.promise("P-skill-origin")
@pytest.mark.parametrize(
    "change",
    [
        lambda raw: b"#!/bin/sh\n" + raw,
        lambda raw: b"\x7fELF" + b"\0" * 60 + raw,
        lambda raw: raw + b"\0",
        lambda raw: raw + raw,
        lambda raw: raw + raw[-END:],
        lambda raw: raw[:-2] + b"\x05\x00hello",
        lambda raw: raw[: directory_at(raw)] + b"gap" + raw[directory_at(raw) :],
        lambda raw: raw[: directory_at(raw)] + raw[-END:],
        lambda raw: raw[:-END] + b"PK\x06\x06" + b"\0" * 52 + b"PK\x06\x07" + b"\0" * 16 + raw[-END:],
        lambda raw: raw[:-END] + raw_end(1, len(raw) - END - directory_at(raw), directory_at(raw)),
        lambda raw: raw[:-END] + raw_end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        lambda raw: raw[: directory_at(raw)] * 2 + raw[directory_at(raw) :],
    ],
    ids=["script", "program", "nul", "twice", "two ends", "comment", "gap", "no directory", "zip64 records", "count",
         "zip64 end", "entries twice"],
)  # fmt: skip
async def test_bytes_before_between_and_behind(harness: SkillHarness, change: Callable[[bytes], bytes]) -> None:
    await refused(harness, change(archive()), "skill.malformed_archive", "skill.bad_entry")


async def test_an_entry_that_only_the_directory_or_only_the_body_knows(harness: SkillHarness) -> None:
    parts = parts_of(archive())
    good = built(parts)
    at = directory_at(good)
    hidden = raw_local(b"skill.toml", b"evil")
    # The body has one more entry than the directory, and the other way round.
    more_in_body = good[:at] + hidden + good[at:-END] + raw_end(len(parts), len(good) - END - at, at + len(hidden))
    ghost = raw_central(b"zzz.toml", b"evil", 0)
    more_in_directory = good[:-END] + ghost + raw_end(len(parts) + 1, len(good) - END - at + len(ghost), at)
    for raw in (more_in_body, more_in_directory):
        await refused(harness, raw, "skill.malformed_archive")


@pytest.mark.promise("P-skill-origin")
async def test_overlapping_entries(harness: SkillHarness) -> None:
    """Two names for the same bytes, and an entry inside another's data."""
    inner = raw_local(b"modules/x.wasm", wat(ECHO))
    parts = {**parts_of(archive()), "assets/a": inner}
    good = built(parts)
    inside = good.index(inner)
    at = directory_at(good)
    extra = raw_central(b"modules/x.wasm", wat(ECHO), inside)
    nested = good[:-END] + extra + raw_end(len(parts) + 1, len(good) - END - at + len(extra), at)
    shared = built(parts_of(archive()), central=only("skill.toml", offset=0))
    for raw in (nested, shared):
        await refused(harness, raw, "skill.malformed_archive")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_bombs_are_not_unpacked(harness: SkillHarness, method: int) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as bomb:
        for name, data in parts_of(archive()).items():
            bomb.writestr(name, data)
        bomb.writestr("assets/zeros", b"\0" * (64 * MIB))
    assert len(packed.getvalue()) < MIB
    await refused(harness, packed.getvalue(), "skill.malformed_archive")


async def test_an_honest_zip_program_makes_another_archive(harness: SkillHarness) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as other:
        for name, data in sorted(parts_of(archive()).items()):
            other.writestr(zipfile.ZipInfo(name), data)
    await refused(harness, packed.getvalue(), "skill.malformed_archive")


@pytest.mark.promise("P-limits")
def test_limits_hold_before_anything_is_read() -> None:
    with pytest.raises(ArchiveTooLarge):
        read_artifact(b"PK\x03\x04" + b"\0" * (64 * MIB))
    with pytest.raises(ArchiveTooLarge):
        read_artifact(write_archive({f"assets/{number}": b"" for number in range(300)}))
    huge = raw_local(b"skill.toml", b"", size=0x7FFFFFFF, packed=0x7FFFFFFF)
    with pytest.raises(MalformedArchive):
        read_artifact(huge)


@pytest.mark.parametrize(
    "name",
    [b"../../etc/cron.d/x", b"/etc/passwd", b"assets/../../x", b"assets\\..\\x", b"C:\\x", b"assets/x\0.txt",
     b"./skill.toml", b"assets//x", b"modules/../skill.toml", b"\xc3\xa4", b"\xff", b"assets/CON:", b""],
)  # fmt: skip
def test_names_that_would_leave_the_folder(name: bytes) -> None:
    parts = parts_of(archive())
    names = sorted([*(part.encode() for part in parts), name])
    contents = {**{part.encode(): data for part, data in parts.items()}, name: b"x"}
    body, directory = b"", b""
    for one in names:
        directory += raw_central(one, contents[one], len(body))
        body += raw_local(one, contents[one])
    raw = body + directory + raw_end(len(names), len(directory), len(body))
    with pytest.raises((MalformedArchive, BadEntry)):
        read_artifact(raw)


def test_entries_in_another_order_or_twice() -> None:
    parts = parts_of(archive())
    for names in (sorted(parts, reverse=True), [*sorted(parts), "skill.toml"], ["skill.toml", *sorted(parts)]):
        body, directory = b"", b""
        for name in names:
            directory += raw_central(name.encode(), parts[name], len(body))
            body += raw_local(name.encode(), parts[name])
        with pytest.raises(MalformedArchive):
            read_artifact(body + directory + raw_end(len(names), len(directory), len(body)))


# ---- the signature and whose it is ------------------------------------------------------------------------------


async def test_a_stripped_signature(harness: SkillHarness) -> None:
    with pytest.raises(Unsigned):
        verify_signature(pack_artifact(entries()), of)
    await refused(harness, pack_artifact(entries()).raw, "skill.unsigned")


async def test_a_signature_moved_from_another_version(harness: SkillHarness) -> None:
    parts = {**entries(manifest("2.0.0")), "signature.json": artifact("1.0.0").signature or b""}
    with pytest.raises(SignatureMismatch):
        verify_signature(pack_artifact(parts), of)
    await refused(harness, pack_artifact(parts).raw, "skill.signature_mismatch")


async def test_another_key_for_a_known_publisher(harness: SkillHarness) -> None:
    await refused(harness, archive(signer=key("thief")), "skill.key_mismatch")


async def test_a_trusted_publisher_cannot_sign_for_another(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    with pytest.raises(KeyNotThePublishers):
        await registry.install(archive(publisher="zeta", signer=key("acme")), actor=ACTOR)


@pytest.mark.promise("P-skill-origin")
async def test_takeover_of_an_id_by_another_trusted_publisher(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await harness.approved(registry)
    theirs = {"skill_id": SKILL, "publisher": "zeta", "signer": key("zeta")}
    with pytest.raises(SkillIdTaken):
        await registry.install(archive("9.0.0", **theirs), actor=ACTOR)
    await registry.remove(SKILL, actor=ACTOR)
    with pytest.raises(SkillIdTaken):
        await registry.install(archive("9.0.0", **theirs), actor=ACTOR)


async def test_an_id_is_owned_from_the_approval_on_and_rivals_before_it_lose(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    theirs = await registry.install(archive("9.0.0", skill_id=SKILL, publisher="zeta", signer=key("zeta")), actor=ACTOR)
    await harness.approved(registry)
    with pytest.raises(SkillIdTaken):
        await registry.approve(SKILL, theirs.version, theirs.digest, actor=ACTOR)


async def test_takeover_of_a_publisher_after_first_use(harness: SkillHarness) -> None:
    registry = harness.registry(trust_on_first_use=True)
    await harness.approved(registry)
    for skill_id in (SKILL, "acme.other"):
        with pytest.raises(KeyNotThePublishers):
            await registry.install(archive("2.0.0", skill_id=skill_id, signer=key("thief")), actor=ACTOR)
    # Taking the key off the list does not make room for the next comer.
    await registry.distrust_publisher(PUBLISHER, key(PUBLISHER).key_id, actor=ACTOR)
    with pytest.raises(UntrustedPublisher):
        await registry.install(archive("2.0.0", signer=key("thief")), actor=ACTOR)


async def test_a_stolen_old_key_cannot_rotate_or_sign_again(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await registry.rotate_key(make_rotation(PUBLISHER, key(PUBLISHER), key("new").public_key()), actor=ACTOR)
    with pytest.raises(KeyNotThePublishers):
        await registry.rotate_key(make_rotation(PUBLISHER, key(PUBLISHER), key("thief").public_key()), actor=ACTOR)
    with pytest.raises(KeyNotThePublishers):
        await registry.install(archive(), actor=ACTOR)
    assert (await registry.install(archive(signer=key("new")), actor=ACTOR)).key_id == key("new").key_id


async def test_a_rotation_of_another_publisher_changes_nothing_here(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    with pytest.raises(KeyNotThePublishers):
        await registry.rotate_key(make_rotation("zeta", key("acme"), key("thief").public_key()), actor=ACTOR)


@pytest.mark.parametrize("end", ["distrusted", "revoked", "both"])
async def test_a_publisher_whose_key_was_ended_is_not_met_for_the_first_time_again(
    harness: SkillHarness, end: str
) -> None:
    """Under no id of theirs; a thief would only have to be the first to come."""
    registry = harness.registry(trust_on_first_use=True)
    await harness.approved(registry)
    genuine = key(PUBLISHER).key_id
    if end != "revoked":
        await registry.distrust_publisher(PUBLISHER, genuine, actor=ACTOR)
    if end != "distrusted":
        await registry.revoke_key(genuine, actor=ACTOR)
    stolen = archive(skill_id="acme.other", signer=key("thief"))
    assert (await registry.judge(stolen)).trust is None
    for raw in (stolen, archive("2.0.0", signer=key("thief"))):
        with pytest.raises(UntrustedPublisher):
            await registry.install(raw, actor=ACTOR)
    # An operator who knows better says so, with the same key or another.
    word = PUBLISHER if end == "distrusted" else "acme's new one"
    await registry.trust_publisher(PUBLISHER, key(word).public_key(), actor=ACTOR)
    await harness.approved(registry, skill_id="acme.other", signer=key(word))
    with pytest.raises(KeyNotThePublishers):
        await registry.install(archive("3.0.0", skill_id="acme.other", signer=key("thief")), actor=ACTOR)


@pytest.mark.promise("P-skill-origin")
async def test_a_revoked_key_comes_back_by_no_door(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await harness.approved(registry)
    await registry.revoke_key(key(PUBLISHER).key_id, actor=ACTOR)
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR),
        lambda: registry.trust_publisher("innocent", key(PUBLISHER).public_key(), actor=ACTOR),
        lambda: registry.install(archive("2.0.0"), actor=ACTOR),
        lambda: registry.enable(SKILL, actor=ACTOR),
    )
    for attempt in attempts:
        with pytest.raises(KeyRevoked):
            await attempt()
    assert await registry.active_modules(actor=ACTOR) == ()


# ---- versions ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("P-skill-origin")
async def test_downgrade_to_an_older_signed_version(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    older = await registry.install(archive("1.0.0"), actor=ACTOR)
    await harness.approved(registry, "1.1.0")
    for attempt in (
        lambda: registry.approve(SKILL, older.version, older.digest, actor=ACTOR),
        lambda: registry.install(archive("1.0.5"), actor=ACTOR),
        lambda: registry.install(archive("1.1.0-rc.1"), actor=ACTOR),
    ):
        with pytest.raises(Downgrade):
            await attempt()
    await registry.remove(SKILL, actor=ACTOR)
    with pytest.raises(Downgrade):
        await registry.install(archive("1.0.0"), actor=ACTOR)


async def test_a_definition_changed_after_approval_under_the_same_version(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    changed = artifact(capabilities='channels = ["everybody"]')
    with pytest.raises(VersionReused):
        await registry.install(changed.raw, actor=ACTOR)
    (module,) = await registry.active_modules(actor=ACTOR)
    assert module.digest == approved.digest and module.manifest.capabilities.channels == ()


async def test_what_is_swapped_between_review_and_approval_is_not_approved(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    reviewed = await registry.install(archive(assets={"a": b"reviewed"}), actor=ACTOR)
    await registry.install(archive(assets={"a": b"swapped"}), actor=ACTOR)
    with pytest.raises(PalyraError):
        await registry.approve(SKILL, "1.0.0", reviewed.digest, actor=ACTOR)
    assert await registry.active_modules(actor=ACTOR) == ()


# ---- after approval ---------------------------------------------------------------------------------------------


@pytest.mark.promise("P-skill-approved")
@pytest.mark.parametrize("swap", ["newer signed", "unsigned", "one bit", "link", "gone"])
async def test_a_swap_on_disk_after_approval_does_not_run(harness: SkillHarness, swap: str, tmp_path: Path) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    (held,) = await registry.active_modules(actor=ACTOR)
    path = harness.file(approved.digest)
    good = path.read_bytes()
    path.unlink()
    match swap:
        case "newer signed":
            path.write_bytes(archive("1.0.1"))
        case "unsigned":
            path.write_bytes(pack_artifact(entries(modules={"main.wasm": wat("(module)")})).raw)
        case "one bit":
            path.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
        case "link":
            (tmp_path / "copy").write_bytes(good)
            path.symlink_to(tmp_path / "copy")
        case _:
            pass
    # What was handed out before is what was approved; what is asked for now is refused and on record.
    assert held.module_bytes == wat(ECHO)
    assert await registry.active_modules(actor="palyrad") == ()
    (failed,) = [payload for _, payload in harness.events("skill.failed")]
    assert failed["digest"] == approved.digest and "skill.artifact_changed" in failed["reason"]
    with pytest.raises(NotRunnable):
        registry.require_runnable(SKILL, approved.digest)
    # The same archive, installed and approved again, heals it.
    again = await registry.install(archive(), actor=ACTOR)
    await registry.approve(SKILL, again.version, again.digest, actor=ACTOR)
    assert [one.digest for one in await registry.active_modules(actor=ACTOR)] == [approved.digest]


async def test_a_swap_before_approval_enabling_or_rollback_is_noticed(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    first = await harness.approved(registry)
    second = await registry.install(archive("1.1.0"), actor=ACTOR)
    harness.file(second.digest).write_bytes(archive("1.1.0", assets={"a": b"evil"}))
    with pytest.raises(ArtifactChanged):
        await registry.approve(SKILL, second.version, second.digest, actor=ACTOR)
    assert (await registry.details(SKILL)).problems.keys() == {second.digest}
    await registry.disable(SKILL, actor=ACTOR)
    harness.file(first.digest).write_bytes(archive(assets={"a": b"evil"}))
    with pytest.raises(ArtifactChanged):
        await registry.enable(SKILL, actor=ACTOR)


async def test_one_swapped_skill_does_not_stop_the_others(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    bad = await harness.approved(registry)
    await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))
    harness.file(bad.digest).write_bytes(b"evil")
    assert [one.skill_id for one in await registry.active_modules(actor=ACTOR)] == ["zeta.x"]


def rewrite(harness: SkillHarness, sql: str, *values: object) -> None:
    database = sqlite3.connect(harness.journal.database)
    with database:
        database.execute(sql, values)
    database.close()


async def test_a_row_edited_into_use_without_an_approval(harness: SkillHarness) -> None:
    """Somebody who writes the database, and not the journal with its chain."""
    registry = await harness.trusting()
    waiting = await registry.install(archive(), actor=ACTOR)
    forged = msgspec.structs.replace(waiting, state="approved")
    rewrite(harness, "UPDATE skill_versions SET state = 'approved', record = ?", msgspec.json.encode(forged))
    assert await registry.active_modules(actor="palyrad") == ()
    assert "skill.record_changed" in harness.events("skill.failed")[0][1]["reason"]


async def taken_out(harness: SkillHarness, registry: SkillRegistry, how: str) -> None:
    match how:
        case "quarantined":
            await registry.quarantine(SKILL, actor=ACTOR)
        case "disabled":
            await registry.disable(SKILL, actor=ACTOR)
        case "key revoked":
            await registry.revoke_key(key(PUBLISHER).key_id, actor=ACTOR)
        case "removed":
            await registry.remove(SKILL, actor=ACTOR)
        case "failed":
            (path,) = harness.folder.glob("*.skill")
            path.write_bytes(b"rot")
            assert await registry.active_modules(actor=ACTOR) == ()
        case "superseded":
            await harness.approved(registry, "1.1.0")
            rewrite(harness, "DELETE FROM skill_versions WHERE version = '1.1.0'")


@pytest.mark.parametrize("looked_before", [True, False])
@pytest.mark.parametrize("how", ["quarantined", "disabled", "key revoked", "removed", "failed", "superseded"])
async def test_a_row_edited_back_into_use(harness: SkillHarness, how: str, looked_before: bool) -> None:
    """The old record is genuine, and so is the approval it points to; the journal tells what came after it."""
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    if looked_before:
        assert [one.digest for one in await registry.active_modules(actor=ACTOR)] == [approved.digest]
    await taken_out(harness, registry, how)
    harness.file(approved.digest).write_bytes(archive())
    rewrite(harness, "UPDATE skill_versions SET state = 'approved', record = ?", msgspec.json.encode(approved))
    assert await registry.active_modules(actor="palyrad") == ()
    failed = harness.events("skill.failed")[-1][1]
    assert failed["digest"] == approved.digest and "skill.record_changed" in failed["reason"]
    with pytest.raises(NotRunnable):
        registry.require_runnable(SKILL, approved.digest)


async def test_a_row_that_names_another_key_does_not_outlive_the_revocation_of_its_own(harness: SkillHarness) -> None:
    """Revoking disables what the tables say was signed with the key."""
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    other = msgspec.json.encode(msgspec.structs.replace(approved, key_id="ed25519:other"))
    rewrite(harness, "UPDATE skill_versions SET key_id = 'ed25519:other', record = ?", other)
    assert await registry.revoke_key(key(PUBLISHER).key_id, actor=ACTOR) == []
    rewrite(harness, "DELETE FROM skill_revoked_keys")
    own = msgspec.json.encode(approved)
    rewrite(harness, "UPDATE skill_versions SET key_id = ?, record = ?", approved.key_id, own)
    assert await registry.active_modules(actor="palyrad") == ()
    assert "skill.key_revoked" in harness.events("skill.failed")[-1][1]["reason"]
    disabled = msgspec.json.encode(msgspec.structs.replace(approved, key_id="ed25519:other", state="disabled"))
    rewrite(harness, "UPDATE skill_versions SET state = 'disabled', key_id = 'ed25519:other', record = ?", disabled)
    with pytest.raises(DigestMismatch):
        await registry.enable(SKILL, actor=ACTOR)


async def test_a_row_edited_into_use_hides_nothing_from_the_review(harness: SkillHarness) -> None:
    """What the version in use may do is not shown as new: so it has to be the one that is."""
    registry = await harness.trusting()
    greedy = {"capabilities": 'channels = ["everybody"]'}
    planted = await registry.install(archive("1.0.0", **greedy), actor=ACTOR)
    forged = msgspec.structs.replace(planted, state="approved")
    rewrite(harness, "UPDATE skill_versions SET state = 'approved', record = ?", msgspec.json.encode(forged))
    judged = await registry.judge(archive("1.1.0", **greedy))
    assert judged.difference.added == ("send messages to the channel everybody",)


BROKEN = {
    "empty": b"{}",
    "no JSON": b"\xff",
    "no text": b'{"skill_id":"\xff"}',
    "without end": b'{"manifest":' + b"[" * 100_000,
    "another's": None,
}


@pytest.mark.parametrize("how", BROKEN)
async def test_one_broken_row_does_not_stop_the_others(harness: SkillHarness, how: str) -> None:
    registry = await harness.trusting("acme", "zeta")
    broken = await harness.approved(registry)
    good = await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))
    record = BROKEN[how] or msgspec.json.encode(good)
    rewrite(harness, "UPDATE skill_versions SET record = ? WHERE skill_id = ?", record, SKILL)
    for _ in range(2):
        assert [one.skill_id for one in await registry.active_modules(actor="palyrad")] == ["zeta.x"]
    (failed,) = [payload for _, payload in harness.events("skill.failed")]
    assert (failed["skill_id"], failed["digest"]) == (SKILL, broken.digest) and "skill.record_changed" in failed[
        "reason"
    ]
    with pytest.raises(NotRunnable):
        registry.require_runnable(SKILL, broken.digest)
    # It is in nobody's way, is refused by its name, and a person can clear it.
    assert [skill_id for skill_id, _ in registry.index.listed()] == ["zeta.x"]
    for attempt in (lambda: registry.details(SKILL), lambda: registry.install(archive("1.1.0"), actor=ACTOR)):
        with pytest.raises(RecordChanged, match=SKILL):
            await attempt()
    await registry.remove(SKILL, "1.0.0", actor=ACTOR)
    assert harness.events("skill.removed")[-1][1]["digest"] == broken.digest
    await harness.approved(registry)
    assert [one.skill_id for one in await registry.active_modules(actor="palyrad")] == [SKILL, "zeta.x"]


async def test_a_broken_row_does_not_keep_a_key_from_being_revoked(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    await harness.approved(registry)
    other = await harness.approved(registry, skill_id="acme.other")
    rewrite(harness, "UPDATE skill_versions SET record = ? WHERE skill_id = ?", b"{}", SKILL)
    assert [one.digest for one in await registry.revoke_key(key(PUBLISHER).key_id, actor=ACTOR)] == [other.digest]
    assert await registry.active_modules(actor="palyrad") == ()


async def test_one_broken_row_of_a_key_does_not_stop_the_others(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await harness.approved(registry)
    rewrite(harness, "UPDATE skill_keys SET source = 'nobody' WHERE publisher = ?", PUBLISHER)
    keys, _ = registry.publishers()
    assert [one.publisher for one in keys] == ["zeta"]
    await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))
    assert len(await registry.active_modules(actor="palyrad")) == 2, "what was approved before stays what it was"
    (failed,) = [payload for _, payload in harness.events("skill.key_unreadable")]
    assert (failed["publisher"], failed["key_id"], failed["state"]) == (PUBLISHER, key(PUBLISHER).key_id, "active")
    with pytest.raises(RecordChanged, match=PUBLISHER):
        await registry.install(archive("1.1.0"), actor=ACTOR)
    assert harness.events("skill.refused")[-1][1]["code"] == "skill.record_changed"
    judged = await registry.judge(archive("1.1.0"))
    assert judged.trust is None


async def test_a_broken_row_of_a_key_does_not_make_its_publisher_a_stranger(harness: SkillHarness) -> None:
    """Whoever breaks the row must not get in as somebody who is met for the first time."""
    registry = await harness.trusting(trust_on_first_use=True)
    rewrite(harness, "UPDATE skill_keys SET state = 'gone'")
    with pytest.raises(RecordChanged):
        await registry.install(archive(), actor=ACTOR)
    with pytest.raises(UntrustedPublisher):
        await registry.install(archive(signer=key("thief")), actor=ACTOR)
    await registry.revoke_key(key(PUBLISHER).key_id, actor=ACTOR)
    with pytest.raises(KeyRevoked):
        await registry.install(archive(), actor=ACTOR)


@pytest.mark.parametrize("first_met", ["listed", "pinned"])
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE skill_keys SET publisher = 'acne'",
        "UPDATE skill_keys SET publisher = CAST(x'61636d65ff' AS TEXT)",
        "DELETE FROM skill_keys",
    ],
    ids=["renamed", "no text", "deleted"],
)
async def test_an_edited_table_does_not_make_a_publisher_a_stranger(
    harness: SkillHarness, edit: str, first_met: str
) -> None:
    """The journal says that they were met."""
    registry = harness.registry(trust_on_first_use=True)
    if first_met == "listed":
        await registry.trust_publisher(PUBLISHER, key(PUBLISHER).public_key(), actor=ACTOR)
    else:
        await harness.approved(registry)
        rewrite(harness, "DELETE FROM skill_owners")
    rewrite(harness, edit)
    with pytest.raises(UntrustedPublisher, match="not trusted any more"):
        await registry.install(archive(skill_id="acme.new", signer=key("thief")), actor=ACTOR)
    assert harness.events("skill.refused")[-1][1]["code"] == UntrustedPublisher.code
    # Who was never met is a stranger still, and may be met.
    await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))


async def test_a_revocation_that_is_no_text_is_not_in_the_way_of_the_others(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await registry.revoke_key(key("zeta").key_id, actor=ACTOR)
    rewrite(harness, "INSERT INTO skill_revoked_keys VALUES (CAST(x'ff' AS TEXT), 1, 'x', 'y')")
    await harness.approved(registry)
    with pytest.raises(KeyRevoked):
        await registry.install(archive(skill_id="zeta.x", publisher="zeta", signer=key("zeta")), actor=ACTOR)


async def test_a_broken_configuration_stops_its_skill_alone(harness: SkillHarness) -> None:
    registry = await harness.trusting("acme", "zeta")
    await harness.approved(registry)
    await harness.approved(registry, skill_id="zeta.x", publisher="zeta", signer=key("zeta"))
    rewrite(harness, "INSERT INTO skill_configurations VALUES (?, '1.0.0', '[')", SKILL)
    assert [one.skill_id for one in await registry.active_modules(actor="palyrad")] == ["zeta.x"]
    assert "cannot be read" in harness.events("skill.disabled")[-1][1]["reason"]
    await registry.configure(SKILL, {}, actor=ACTOR)
    await registry.enable(SKILL, actor=ACTOR)
    assert len(await registry.active_modules(actor="palyrad")) == 2


async def test_a_row_edited_to_another_digest(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    evil = await registry.install(archive("1.1.0", assets={"a": b"evil"}), actor=ACTOR)
    rewrite(harness, "DELETE FROM skill_versions WHERE version = '1.1.0'")
    forged = msgspec.structs.replace(approved, digest=evil.digest)
    rewrite(harness, "UPDATE skill_versions SET digest = ?, record = ?", evil.digest, msgspec.json.encode(forged))
    assert await registry.active_modules(actor="palyrad") == ()


async def test_the_review_reads_the_archive_and_not_the_record(harness: SkillHarness) -> None:
    """Whoever hides a capability in the database does not hide it from the person who approves."""
    registry = await harness.trusting()
    waiting = await registry.install(archive(capabilities='channels = ["everybody"]'), actor=ACTOR)
    harmless = msgspec.structs.replace(waiting, manifest=artifact().manifest)
    rewrite(harness, "UPDATE skill_versions SET record = ?", msgspec.json.encode(harmless))
    details = await registry.details(SKILL)
    assert details.differences[waiting.digest].added == ("send messages to the channel everybody",)


async def test_files_stay_private(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    approved = await harness.approved(registry)
    status = os.stat(harness.file(approved.digest))
    assert status.st_mode & 0o077 == 0 and harness.folder.stat().st_mode & 0o077 == 0


# ---- what is inside ---------------------------------------------------------------------------------------------


async def install_signed(registry: SkillRegistry, parts: dict[str, bytes]) -> None:
    await registry.install(sign_artifact(pack_artifact(parts), key(PUBLISHER)).raw, actor=ACTOR)


async def test_signed_by_the_publisher_and_still_kept_out(harness: SkillHarness) -> None:
    registry = await harness.trusting()
    other = entries(modules={"main.wasm": wat('(module (func (export "run") (result i32) (i32.const 1)))')})
    attacks: list[dict[str, bytes]] = [
        {**entries(), "sbom.cdx.json": other["sbom.cdx.json"]},
        {**entries(), "provenance.json": other["provenance.json"]},
        entries(modules={"main.wasm": b"MZ" + b"\0" * 100}),
        entries(modules={"main.wasm": wat(ECHO.replace("(module", '(module (import "env" "system" (func))', 1))}),
        entries(modules={"main.wasm": wat(ECHO.replace("1 4", "65536 65536"))}),
        entries(assets={"key.pem": b"-----BEGIN PRIVATE KEY-----\n" + b"A" * 64}),
    ]
    for parts in attacks:
        with pytest.raises(AuditFailed):
            await install_signed(registry, parts)
    assert await registry.active_modules(actor=ACTOR) == () and not list(harness.folder.glob("*"))


def test_texts_that_a_person_would_not_see() -> None:
    hidden = manifest().replace(b"Adds a note.", "Adds a note.\U000e0049\U000e0047".encode())
    with pytest.raises(PalyraError, match=r"U\+E0049"):
        entries(hidden)


@pytest.mark.parametrize("digits", ["0x" + "f" * 20_000, "0x" + "f" * 900, "9" * 5_000, "-" + "9" * 900])
@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("manifest_version = 1", "manifest_version = {}", 1),
        ("[capabilities]", "[capabilities]\nquotas.fuel_budget = {}", 8),
        ("input_schema = {", "input_schema = {{ minProperties = {},", 14),
    ],
    ids=["version", "quota", "schema"],
)
async def test_numbers_that_cannot_be_written_out(
    harness: SkillHarness, digits: str, old: str, new: str, line: int
) -> None:
    odd = manifest().replace(old.encode(), new.format(digits).encode(), 1)
    await refused(harness, write_archive({**entries(), "skill.toml": odd}), "skill.malformed_manifest")
    assert harness.events("skill.refused")[-1][1]["message"].startswith(f"line {line}: ")
