"""Commands for a review of a skill: verify, audit, list, show."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import read_file
from palyra.errors import Denied, ExitCode, InvalidInput, RemoteError
from palyra.visible_text import escape, render_fields, spell_json

if TYPE_CHECKING:
    from palyra.client.views import SkillView
    from palyra.skills.package.artifact import SkillArtifact

_ERROR = "error"
_REMOVED = "removed"
_MAX_SCHEMA_LINE_CHARS = 160
NAME_AN_ARCHIVE = (
    "name an archive that was signed, such as build/NAME-VERSION.skill: `palyra skill sign` makes it of a project"
)
NAME_A_KEY = "name the publisher's public key, a PEM file: `palyra skill keygen FILE` writes it beside FILE, with .pub"


class OtherKey(Denied):
    code = "cli.other_key"
    hint = "the archive is intact, and somebody else signed it"


class NeitherFileNorSkill(InvalidInput):
    code = "cli.neither_file_nor_skill"
    hint = "name the file of an archive, or a skill that `palyra skill list` shows"


class UnknownVersion(InvalidInput):
    code = "cli.unknown_version"
    hint = "`palyra skill list` shows the versions of each skill"


class ArchiveFile(click.Path):
    """The file of an archive. The error for a folder names the archive in it."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if Path(value).is_dir():
            self.fail(not_an_archive(Path(value)), param, ctx)
        return super().convert(value, param, ctx)


def not_an_archive(folder: Path) -> str:
    from palyra.skills.build.project import BUILD_FOLDER

    made = sorted((folder / BUILD_FOLDER).glob("*.skill"), key=lambda each: each.stat().st_mtime_ns)
    return (
        f"{folder} is a folder; the archive that was signed last there is {made[-1]}"
        if made
        else (f"{folder} is a folder, and nothing was signed there: `palyra skill sign` makes the archive of a project")
    )


@click.command("verify")
@click.argument("file", type=ArchiveFile())
@click.option("--key", type=click.Path(path_type=Path), metavar="FILE", help="The publisher's public key, as PEM.")
@pass_invocation
def verify(invocation: Invocation, file: Path, key: Path | None) -> None:
    """Verify an archive's form, signature, SBOM and provenance, and who signed it.

    With --key nothing else is asked: neither a daemon nor this machine's list of publishers.
    """
    artifact = _read(file)
    key_id = _verified_by(artifact, key)
    manifest = artifact.manifest
    found: dict[str, Any] = {
        "skill_id": manifest.skill_id,
        "version": manifest.version,
        "publisher": manifest.publisher,
        "digest": artifact.digest,
        "key_id": key_id,
        "trust": "key" if key is not None else _trusted(invocation, artifact),
    }
    invocation.output.data(found, lambda _: render_fields((name, escape(value)) for name, value in found.items()))


@click.command("audit")
@click.argument("target", metavar="FILE|SKILL")
@click.option("--version", metavar="VERSION", help="With a skill: the version meant; default: the newest.")
@click.option("--format", "form", type=click.Choice(("text", "sarif")), default="text", show_default=True)
@pass_invocation
def audit(invocation: Invocation, target: str, version: str | None, form: str) -> int:
    """Show what an audit finds in an archive, or found in an installed skill.

    Ends with exit code 3 where a finding keeps the skill out.
    """
    found = _audited(invocation, target, version)
    failing = any(one.get("severity") == _ERROR for one in found["findings"])
    if form == "sarif":
        _print_sarif(invocation, found, target)
    else:
        invocation.output.data(found, lambda _: render_findings(found))
    return ExitCode.DENIED if failing else ExitCode.DONE


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Removed versions as well, which stay on record.")
@pass_invocation
def list_skills(invocation: Invocation, everything: bool) -> None:
    """List skills and their versions, without those that were removed."""
    with open_client(invocation) as client:
        # Removed ones too: their number is printed.
        found = [one.document for one in client.skills(removed=True)]
    known = sum(len(one["versions"]) for one in found)
    listed = found if everything else _without_removed(found)
    rows = [
        (one["skill_id"], *(version[name] for name in ("version", "state", "publisher", "trust", "warnings")))
        for one in listed
        for version in one["versions"]
    ]
    left_out = known - len(rows)
    columns = ("skill", "version", "state", "publisher", "trust", "warnings")
    invocation.output.data(
        {"skills": listed, "removed_left_out": left_out}, lambda _: invocation.output.table(columns, rows)
    )
    if left_out and not invocation.output.json:
        one = left_out == 1
        versions = "1 removed version is" if one else f"{left_out} removed versions are"
        invocation.output.note(f"{versions} left out; --all shows {'it' if one else 'them'}")


@click.command("show")
@click.argument("skill_id")
@click.option("--version", metavar="VERSION", help="Only this version.")
@pass_invocation
def show(invocation: Invocation, skill_id: str, version: str | None) -> None:
    """Show a skill: each version with what it asks for beyond the one in use, its findings, and the history."""
    with open_client(invocation) as client:
        found = client.skill(skill_id)
    versions = [one for one in found.versions if version in (None, one.get("version"))]
    if version is not None and not versions:
        raise UnknownVersion(f"{skill_id} has no version {version}", hint=f"`palyra skill show {skill_id}` shows all")
    invocation.output.data({**found.document, "versions": versions}, lambda _: _render(found, versions))


def _without_removed(skills: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Omit removed versions, and skills without any other version."""
    kept = [
        {**one, "versions": [version for version in one["versions"] if version["state"] != _REMOVED]} for one in skills
    ]
    return [one for one in kept if one["versions"]]


def render_review(version: dict[str, Any]) -> str:
    """Show everything that a person needs to decide. Nothing is shortened: hidden text cannot be judged."""
    manifest, difference = version.get("manifest") or {}, version.get("difference") or {}
    return render_fields(
        (
            ("skill", escape(f"{version['skill_id']} {version['version']}")),
            ("name", escape(str(manifest.get("name", "")))),
            ("description", _text(manifest.get("description"))),
            ("to the operator", _operator_notes(manifest.get("operator") or {})),
            ("state", escape(version.get("state") or "")),
            ("problem", escape(version.get("problem") or "")),
            ("publisher", escape(f"{version.get('publisher', '')}, signed with {version.get('key_id', '')}")),
            ("trust", escape(version.get("trust") or "none")),
            ("digest", escape(version["digest"])),
            ("tools", _tools(version, manifest.get("tools") or ())),
            ("asks to", _lines(version.get("capabilities")) or "nothing beyond computing"),
            ("but gets", render_cuts(version.get("gets_less") or ())),
            ("compared with", _compared(version, difference)),
            ("new", _lines(difference.get("added"), "+ ")),
            ("no longer", _lines(difference.get("removed"), "- ")),
            ("new tools", _lines(difference.get("added_tools"), "+ ")),
            ("changed tools", _lines(difference.get("changed_tools"), "~ ")),
            ("lost tools", _lines(difference.get("removed_tools"), "- ")),
            ("configuration", spell_json(version["configuration"]) if version.get("configuration") else ""),
            ("may be configured", _configurable(manifest.get("operator") or {})),
            ("audit", render_findings(version)),
        )
    )


def render_findings(found: dict[str, Any]) -> str:
    findings = found.get("findings") or ()
    if not findings:
        return "nothing found"
    lines = []
    for one in findings:
        place = f"{one['entry']}:{one['line']}" if one.get("line") else one["entry"]
        lines.append(f"{escape(one['severity'])} {escape(one['id'])} {escape(place)}: {escape(one['evidence'])}")
        lines.append(f"  {escape(one['remedy'])}")
    return "\n".join(lines)


def _render(found: "SkillView", versions: list[dict[str, Any]]) -> str:
    blocks = [render_review(one) for one in versions]
    if found.kept_folder:
        blocks.append(render_fields((("kept folder", f"{escape(found.kept_folder)}, used by nobody"),)))
    history = [
        f"{escape(one['time'])}  {escape(one['kind'])}  {escape(one['version'])}  by {escape(one['actor'])}"
        + (f": {escape(one['reason'])}" if one.get("reason") else "")
        for one in found.history
    ]
    return "\n\n".join([*blocks, "\n".join(["history", *(f"  {line}" for line in history)])])


def _tools(version: dict[str, Any], tools: Sequence[dict[str, Any]]) -> str:
    """Show the tools with every word that a model will read."""
    names = dict(zip((tool["id"] for tool in tools), version.get("tools") or (), strict=False))
    lines = []
    for tool in tools:
        repeated = ", may be repeated" if tool.get("idempotent") else ""
        lines.append(f"{escape(names.get(tool['id'], tool['id']))}  {escape(tool.get('risk', ''))} risk{repeated}")
        said = (
            ("title", _text(tool.get("title"))),
            ("description", _text(tool.get("description"))),
            ("takes", _schema(tool.get("input_schema"))),
            ("returns", _schema(tool.get("output_schema"))),
        )
        lines.append(render_fields(said, indent=2))
    return "\n".join(lines)


def _operator_notes(notes: dict[str, Any]) -> str:
    return "\n".join(filter(None, (_text(notes.get("summary")), _text(notes.get("documentation")))))


def _configurable(notes: dict[str, Any]) -> str:
    schema, defaults = notes.get("configuration_schema"), notes.get("configuration_defaults")
    if schema is None:
        return ""
    preset = f"\nunless set otherwise: {_schema(defaults)}" if defaults else ""
    return f"by this schema: {_schema(schema)}{preset}"


def _compared(version: dict[str, Any], difference: dict[str, Any]) -> str:
    with_ = difference.get("compared_with")
    if with_ and with_ == version.get("version") and version.get("state") == "approved":
        return ""
    return escape(str(with_ or "nothing: no version is in use"))


def render_cuts(lines: Sequence[dict[str, Any]]) -> str:
    """List the requests that the settings do not grant whole: the reviewer sees the values that the skill will get."""
    return "\n".join(
        f"{escape(one['gets'])}, where it asks to {escape(one['asked'])} (setting {escape(one['setting'])})"
        for one in lines
    )


def _schema(schema: Any) -> str:
    """Write a schema on one line if it fits."""
    import json

    line = json.dumps(schema)
    return escape(line) if len(line) <= _MAX_SCHEMA_LINE_CHARS else spell_json(schema)


def _text(said: Any) -> str:
    """Make each line of a text printable."""
    return "\n".join(map(escape, str(said or "").splitlines()))


def _lines(items: Any, mark: str = "") -> str:
    return "\n".join(mark + escape(str(item)) for item in items or ())


def _audited(invocation: Invocation, target: str, version: str | None) -> dict[str, Any]:
    from palyra.skills.limits import MAX_ARTIFACT_BYTES

    path = Path(target)
    named_as_path = target.startswith(".") or "/" in target
    if path.is_dir() and named_as_path:
        raise click.UsageError(not_an_archive(path))
    archive = None
    if path.is_file() or named_as_path:
        archive = read_file(path, MAX_ARTIFACT_BYTES, hint=NAME_AN_ARCHIVE)
    with open_client(invocation) as client:
        if archive is not None:
            return client.audit_skill(archive).document
        try:
            versions = client.skill(target).versions
        except RemoteError as error:
            if error.remote_code != "skill.unknown":
                raise
            raise NeitherFileNorSkill(f"there is no file {target}, and no skill of that id") from error
    found = next((one for one in versions if version in (None, one.get("version"))), None)
    if found is None:
        raise click.UsageError(f"{target} has no version {version}")
    return found


def _print_sarif(invocation: Invocation, found: dict[str, Any], target: str) -> None:
    """Print SARIF, which is a document of its own and not put into ours."""
    import json

    import msgspec

    from palyra.skills.trust.findings import AuditReport, to_sarif
    from palyra.version import VERSION

    fields = {name: found[name] for name in ("digest", "skill_id", "version", "findings")}
    report = msgspec.convert(fields, AuditReport)
    document = to_sarif(report, tool_version=VERSION, file=Path(target).name)
    click.echo(json.dumps(document, indent=None if invocation.output.json else 2, ensure_ascii=True))


def _read(file: Path) -> "SkillArtifact":
    from palyra.skills.limits import MAX_ARTIFACT_BYTES
    from palyra.skills.package.artifact import read_artifact

    return read_artifact(read_file(file, MAX_ARTIFACT_BYTES, hint=NAME_AN_ARCHIVE))


def _verified_by(artifact: "SkillArtifact", key: Path | None) -> str:
    from palyra.signing.ed25519 import Ed25519Verifier, KeyUnavailable
    from palyra.skills.package.supply_chain import require_provenance, require_sbom
    from palyra.skills.trust.signature import verify_signature

    signature = verify_signature(artifact, Ed25519Verifier.from_public_bytes)
    require_sbom(artifact)
    require_provenance(artifact)
    if key is not None:
        try:
            expected = Ed25519Verifier.from_pem_file(key).key_id
        except KeyUnavailable as error:
            error.hint = NAME_A_KEY
            raise
        if signature.key_id != expected:
            raise OtherKey(f"it is signed with {signature.key_id}, not with {expected}")
    return signature.key_id


def _trusted(invocation: Invocation, artifact: "SkillArtifact") -> str:
    from palyra.skills.trust.publisher_keys import UntrustedPublisher

    with open_client(invocation) as client:
        judged = client.audit_skill(artifact.raw)
    if judged.trust is None:
        why = next((one["evidence"] for one in judged.findings if one.get("id") == "trust"), "nobody vouches for it")
        raise UntrustedPublisher(str(why), key_id=judged.key_id)
    return judged.trust
