"""Commands of a skill's author: new, build, keygen, sign."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, pass_invocation
from palyra.cli.terminal import command_line
from palyra.errors import Failed
from palyra.visible_text import escape, render_fields

if TYPE_CHECKING:
    from palyra.signing.ed25519 import Ed25519Signer
    from palyra.skills.build.project import BuildNote
    from palyra.skills.build.project_files import Project
    from palyra.skills.package.artifact import SkillArtifact

LANGUAGES = ("c", "assemblyscript", "python", "rust", "wat")


def of_a_project(command: Callable[..., Any]) -> Callable[..., Any]:
    """``[DIR]``, or the same with ``--dir``: the project that a command is about, as its ``folder``."""
    kind = click.Path(path_type=Path, file_okay=False)

    @click.argument("place", metavar="[DIR]", required=False, type=kind)
    @click.option(
        "--dir", "named", type=kind, show_default="the current folder", help="The project's folder; the same as DIR."
    )
    @wraps(command)
    def found(*given: Any, place: Path | None, named: Path | None, **more: Any) -> Any:
        return command(*given, folder=one_folder(place, named) or Path(), **more)

    return found


def one_folder(place: Path | None, named: Path | None) -> Path | None:
    if place and named and place.resolve() != named.resolve():
        raise click.UsageError(f"DIR is {place} and --dir is {named}: give one of them")
    return place or named


class NotBuilt(Failed):
    code = "skill.not_built"
    hint = "run `palyra skill build` first"


class KeyExists(Failed):
    code = "skill.key_exists"
    hint = "a key that has signed something is worth keeping; choose another name"


@click.command("new")
@click.argument("name")
@click.argument("place", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--lang", "language", type=click.Choice(LANGUAGES), default="c", show_default=True)
@click.option("--publisher", default="local", show_default=True, help="Who will sign it.")
@click.option(
    "--dir",
    "named",
    type=click.Path(path_type=Path),
    show_default="NAME",
    help="Where to put it, the same as DIR; must not exist.",
)
@pass_invocation
def new(
    invocation: Invocation, name: str, place: Path | None, language: str, publisher: str, named: Path | None
) -> None:
    """Begin a skill: a project that builds, with a tool, its schemas and tests."""
    from palyra.skills.build.project import Language, fill, project_names
    from palyra.skills.build.project_files import template, write_project

    names = project_names(name, publisher)
    folder = one_folder(place, named) or Path(names.skill_id)
    files = fill(template(Language(language)), names)
    write_project(folder, files)
    found = {"skill_id": names.skill_id, "language": language, "folder": str(folder), "files": sorted(files)}
    steps = [f"cd {command_line(str(folder))}", "palyra skill build", "palyra skill test"]
    invocation.output.data(
        found, lambda _: "\n".join([f"{folder}: {names.skill_id} in {language}. Next:", *(f"  {one}" for one in steps)])
    )


@click.command("build")
@of_a_project
@pass_invocation
def build(invocation: Invocation, folder: Path) -> None:
    """Compile a project and pack it, unsigned. The compiler is fetched from its registry on first use."""
    from palyra.skills.build.project_files import read_project

    project = read_project(folder)
    artifact = build_project(invocation, project)
    place = unsigned_place(project)
    found = {
        "skill_id": project.manifest.skill_id,
        "version": project.manifest.version,
        "file": str(place),
        "bytes": len(artifact.raw),
        "modules": {name: len(data) for name, data in artifact.modules.items()},
        "digest": artifact.digest,
    }
    sizes = ", ".join(f"{name} ({len(data)} bytes)" for name, data in artifact.modules.items())
    lines = {**found, "modules": sizes}
    invocation.output.data(found, lambda _: render_fields((key, escape(str(value))) for key, value in lines.items()))


def build_project(invocation: Invocation, project: "Project") -> "SkillArtifact":
    """Build, pack and write the unsigned archive into the project's build folder."""
    artifact = unsigned_artifact(invocation, project)
    write_archive_file(unsigned_place(project), artifact.raw)
    _note_build(invocation, project, artifact)
    return artifact


def unsigned_artifact(
    invocation: Invocation, project: "Project", origin: dict[str, str] | None = None
) -> "SkillArtifact":
    from importlib.resources import as_file, files

    from palyra.skills.build.project import assemble
    from palyra.skills.build.toolchain import Toolchains, default_cache

    cache = default_cache(invocation.environ)
    with (
        as_file(files("palyra.wasm") / "wit" / "palyra-skill.wit") as wit,
        invocation.output.working(f"building {project.manifest.skill_id}"),
    ):
        toolchains = Toolchains(cache, wit=wit, environ=invocation.environ, say=invocation.output.note)
        built = toolchains.build(project.folder, project.plan.language, project.plan.modules)
    return assemble(
        project.manifest_bytes, project.plan, built, sources=project.sources, assets=project.assets, origin=origin
    )


def unsigned_place(project: "Project") -> Path:
    from palyra.skills.build.project import BUILD_FOLDER
    from palyra.skills.build.project_files import require_plain

    manifest = project.manifest
    return (
        require_plain(project.folder, project.folder / BUILD_FOLDER)
        / f"{manifest.skill_id}-{manifest.version}.unsigned"
    )


def signed_place(project: "Project") -> Path:
    return unsigned_place(project).with_name(f"{project.manifest.skill_id}-{project.manifest.version}.skill")


def write_archive_file(place: Path, raw: bytes) -> None:
    import os
    import secrets

    place.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a half-written archive is refused, and confuses. Under a name that no link waits for.
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as file:
            file.write(raw)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)


def built_artifact(invocation: Invocation, project: "Project") -> "SkillArtifact":
    """Return the archive of the last build of this project. One that no build here wrote is built again."""
    import hashlib

    from palyra.skills.limits import MAX_ARTIFACT_BYTES
    from palyra.skills.package.artifact import read_artifact

    place = unsigned_place(project)
    try:
        if not place.is_file():
            # Nor is a pipe waited for, which nobody may ever write to.
            raise NotBuilt(f"{place} is not there")
        with place.open("rb") as file:
            raw = file.read(MAX_ARTIFACT_BYTES + 1)
    except OSError as error:
        raise NotBuilt(f"{place} is not there: {error.strerror}") from error
    note = _note_about(invocation, project)
    if note is None or note.archive != hashlib.sha256(raw).hexdigest():
        invocation.output.note(f"{escape(str(place))} is not what `palyra skill build` wrote here: building again")
        return build_project(invocation, project)
    if note.inputs != _inputs_digest(project):
        raise NotBuilt("the project was changed since it was built")
    return read_artifact(raw)


def _note_build(invocation: Invocation, project: "Project", artifact: "SkillArtifact") -> None:
    from palyra.config.state_dir import StateDirExposed, StateDirUnusable
    from palyra.skills.build.project import BuildNote, note_name

    note = BuildNote(inputs=_inputs_digest(project), archive=artifact.digest)
    # Without a note the next command builds again.
    with suppress(StateDirExposed, StateDirUnusable):
        invocation.state_dir.write_atomic(note_name(project.folder.resolve()), note.encoded())


def _note_about(invocation: Invocation, project: "Project") -> "BuildNote | None":
    from palyra.config.state_dir import StateDirExposed, StateDirUnusable, refuse_if_exposed
    from palyra.skills.build.project import MAX_NOTE_BYTES, note_name, parse_note

    try:
        place = invocation.state_dir.path(note_name(project.folder.resolve()))
        refuse_if_exposed(place.parent)
        with place.open("rb") as file:
            return parse_note(file.read(MAX_NOTE_BYTES))
    except (OSError, StateDirExposed, StateDirUnusable):
        return None


def _inputs_digest(project: "Project") -> str:
    from palyra.skills.build.project import inputs_digest

    return inputs_digest(project.manifest_bytes, project.plan, sources=project.sources, assets=project.assets)


@click.command("keygen")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@pass_invocation
def keygen(invocation: Invocation, file: Path) -> None:
    """Make a publisher's key: FILE is the secret half (0600), beside it FILE with .pub is for everybody."""
    from palyra.signing.ed25519 import Ed25519Signer, public_path_of

    if file.exists():
        raise KeyExists(f"{file} exists")
    signer = Ed25519Signer.load_or_create(file)
    found = {"key_id": signer.key_id, "private_key": str(file), "public_key": str(public_path_of(file))}
    invocation.output.data(found, lambda _: render_fields((key, escape(value)) for key, value in found.items()))


@click.command("sign")
@click.option("--key", required=True, type=click.Path(path_type=Path, dir_okay=False), help="From `skill keygen`.")
@of_a_project
@pass_invocation
def sign(invocation: Invocation, key: Path, folder: Path) -> None:
    """Sign the archive of the last build. The same project and key give the same bytes."""
    from palyra.skills.build.project_files import read_project
    from palyra.skills.trust.signature import sign_artifact

    project = read_project(folder)
    signer = publishers_signer(key)
    artifact = sign_artifact(built_artifact(invocation, project), signer)
    place = signed_place(project)
    write_archive_file(place, artifact.raw)
    found: dict[str, Any] = {"file": str(place), "digest": artifact.digest, "bytes": len(artifact.raw)}
    command = command_line("palyra", "skill", "install", str(place))
    invocation.output.data(
        found,
        lambda _: render_fields([*((name, escape(str(value))) for name, value in found.items()), ("next", command)]),
    )


def publishers_signer(key: Path) -> "Ed25519Signer":
    from palyra.signing.ed25519 import Ed25519Signer, KeyUnavailable

    if not key.exists():
        raise KeyUnavailable(f"there is no key {key}", hint="make one with `palyra skill keygen FILE`")
    return Ed25519Signer.load_or_create(key)
