"""``palyra skill builder`` (experimental): from a description or recorded runs to a skill that waits for review."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation
from palyra.cli.terminal import command_line
from palyra.visible_text import escape, escape_block, render_fields

if TYPE_CHECKING:
    from palyra.skills.build.candidates import Candidates
    from palyra.skills.build.generation import Candidate, Generator, RecordedCall

_FOLDER = "skill-candidates"


@click.group("builder")
def builder() -> None:
    """Make skills from descriptions and recorded runs (experimental; skills.builder_enabled)."""


def _candidates(invocation: Invocation) -> "Candidates":
    from palyra.skills.build.candidates import Candidates
    from palyra.skills.build.generation import BuilderDisabled

    if not invocation.settings.skills.builder_enabled:
        raise BuilderDisabled("the skill builder is switched off")
    return Candidates(invocation.state_dir.path(_FOLDER))


@builder.command("create")
@click.argument("name")
@click.option("--prompt", default="", metavar="TEXT", help="What the skill shall do.")
@click.option("--from-runs", "runs", multiple=True, metavar="RUN", help="Take up the calls of this run; repeatable.")
@click.option("--lang", "language", type=click.Choice(("c", "assemblyscript", "python", "rust", "wat")), default="c")
@click.option("--publisher", default="local", show_default=True)
@pass_invocation
def create(
    invocation: Invocation, name: str, prompt: str, runs: tuple[str, ...], language: str, publisher: str
) -> None:
    """Make a candidate: a project in quarantine. Nothing of it is built or run before it is promoted."""
    from palyra.clock import SystemClock
    from palyra.ids import Ulid
    from palyra.skills.build.generation import Candidate, generation_request, require_generated
    from palyra.skills.build.project import Language, project_names

    candidates = _candidates(invocation)
    calls = _recorded_calls(invocation, runs) if runs else ()
    request = generation_request(project_names(name, publisher), Language(language), prompt, calls)
    generator = _generator(invocation)
    with invocation.output.working("generating"):
        generated = generator.generate(request)
    require_generated(generated, request)
    candidate = Candidate(
        id=str.__str__(Ulid.new()),
        skill_id=name,
        language=request.language,
        generator=generator.name,
        created_ms=SystemClock().now_ms(),
        prompt=prompt,
        runs=runs,
        notes=generated.notes,
    )
    candidates.add(candidate, generated.files)
    _show(invocation, candidates, candidate)


def _generator(invocation: Invocation) -> "Generator":
    from palyra.skills.build.command_generator import CommandGenerator
    from palyra.skills.build.project_files import template
    from palyra.skills.build.template_generator import LANGUAGES, TemplateGenerator

    settings = invocation.settings.skills
    if not settings.builder_command:
        return TemplateGenerator({one: template(one) for one in LANGUAGES})
    from importlib.resources import files

    wit = (files("palyra.wasm") / "wit" / "palyra-skill.wit").read_text("utf-8")
    return CommandGenerator(
        settings.builder_command,
        timeout_seconds=settings.builder_timeout_seconds,
        environ=invocation.environ,
        wit=wit,
    )


def _recorded_calls(invocation: Invocation, runs: tuple[str, ...]) -> "tuple[RecordedCall, ...]":
    """Tools and arguments from the journal, results from the calls' records; both without what was redacted."""
    from palyra.ids import RunId
    from palyra.skills.build.generation import MAX_CALLS, NothingToBuild, RecordedCall
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader

    requested: list[tuple[str, dict[str, Any]]] = []
    with SqliteReader(invocation.state_path / DATABASE_NAME) as reader:
        for run in runs:
            events = reader.events_since(0, MAX_CALLS, run=RunId.parse(run), kind="call.requested")
            if not events:
                raise NothingToBuild(f"the run {run} made no calls")
            requested += [(event.call, event.payload_value()) for event in events]
    calls = []
    with open_client(invocation) as client:
        for call_id, payload in requested:
            view = client.call_status(call_id)
            result = view.result if view.status == "succeeded" else None
            calls.append(RecordedCall(tool=payload["tool"], arguments=dict(payload["arguments"]), result=result))
    return tuple(calls)


@builder.command("list")
@pass_invocation
def list_candidates(invocation: Invocation) -> None:
    """List candidates."""
    candidates = _candidates(invocation)
    found, broken = candidates.all(), candidates.broken()

    def as_table(_: Any) -> None:
        rows = [(one.id, one.skill_id, one.state, one.language, one.generator) for one in found]
        invocation.output.table(("candidate", "skill", "state", "language", "generator"), rows)

    for name, problem in broken.items():
        invocation.output.warning(f"the candidate {escape(name)} can only be discarded: {escape(problem)}")
    invocation.output.data({"candidates": found, "broken": broken}, as_table)


@builder.command("show")
@click.argument("candidate_id", metavar="CANDIDATE")
@pass_invocation
def show(invocation: Invocation, candidate_id: str) -> None:
    """Show a candidate with all its files, and the digest to promote it by."""
    candidates = _candidates(invocation)
    _show(invocation, candidates, candidates.get(candidate_id), whole=True)


def _show(invocation: Invocation, candidates: "Candidates", candidate: "Candidate", *, whole: bool = False) -> None:
    from palyra.skills.build.generation import files_digest

    files = candidates.files(candidate.id)
    digest = files_digest(files)
    texts = {name: data.decode("utf-8", "replace") for name, data in sorted(files.items())}
    document: dict[str, Any] = {
        "candidate": candidate,
        "digest": digest,
        "folder": str(candidates.project(candidate.id)),
        "files": texts if whole else sorted(texts),
    }

    def as_text(_: Any) -> str:
        blocks = [
            render_fields(
                (
                    ("candidate", candidate.id),
                    ("skill", escape(candidate.skill_id)),
                    ("state", candidate.state.value),
                    ("generator", escape(candidate.generator)),
                    ("prompt", escape_block(candidate.prompt)),
                    ("runs", "\n".join(map(escape, candidate.runs))),
                    ("notes", "\n".join(map(escape, candidate.notes))),
                    ("folder", escape(str(candidates.project(candidate.id)))),
                    ("digest", digest),
                    ("files", "\n".join(map(escape, sorted(texts)))),
                )
            )
        ]
        if whole:
            blocks += [f"--- {escape(name)}\n{escape_block(text)}" for name, text in texts.items()]
        words = ("palyra", "skill", "builder", "promote", candidate.id, "--digest", digest, "--key", "FILE")
        return "\n\n".join([*blocks, f"After a review: {command_line(*words)}"])

    invocation.output.data(document, as_text)


@builder.command("promote")
@click.argument("candidate_id", metavar="CANDIDATE")
@click.option("--digest", required=True, metavar="SHA256", help="Of the files that you have reviewed.")
@click.option("--key", required=True, type=click.Path(path_type=Path, dir_okay=False), help="From `skill keygen`.")
@pass_invocation
def promote(invocation: Invocation, candidate_id: str, digest: str, key: Path) -> None:
    """Build, test, sign, audit and install a reviewed candidate. It still waits for `skill approve`."""
    import asyncio

    import msgspec

    from palyra.cli.commands.skills.author import publishers_signer, signed_place, unsigned_artifact, write_archive_file
    from palyra.cli.commands.skills.review import render_review
    from palyra.cli.commands.skills.trial import run_examples
    from palyra.skills.build.generation import CandidateState, require_reviewed
    from palyra.skills.build.project_files import copy_project, read_project
    from palyra.skills.build.trial import ExamplesFailed
    from palyra.skills.trust.signature import sign_artifact

    candidates = _candidates(invocation)
    candidate = candidates.get(candidate_id)
    closed = candidate.closed(CandidateState.PROMOTED)
    files = candidates.files(candidate_id)
    require_reviewed(digest, files)
    signer = publishers_signer(key)
    # The candidate's own folder may hold more than was reviewed, and be written to meanwhile.
    with copy_project(files) as reviewed:
        project = read_project(reviewed)
        unsigned = unsigned_artifact(invocation, project, origin=candidate.origin())
        results = asyncio.run(run_examples(project, unsigned))
    failed = {name: problems for name, problems in results.items() if problems}
    if failed or not results:
        raise ExamplesFailed(
            f"{len(failed)} of {len(results)} examples failed" if results else "the candidate has no examples",
            problems=failed,
        )
    artifact = sign_artifact(unsigned, signer)
    kept = msgspec.structs.replace(project, folder=candidates.project(candidate_id))
    write_archive_file(signed_place(kept), artifact.raw)
    with open_client(invocation) as client, invocation.output.working("auditing"):
        installed = client.install_skill(artifact.raw)
    candidates.put(msgspec.structs.replace(closed, artifact_digest=artifact.digest))
    words = (installed.skill_id, installed.version, "--digest", installed.digest)
    command = command_line("palyra", "skill", "approve", *words)
    invocation.output.data(
        installed.document,
        lambda _: f"{render_review(installed.document)}\n\nIt waits for a person. To put it in use:\n  {command}",
    )


@builder.command("discard")
@click.argument("candidate_id", metavar="CANDIDATE")
@pass_invocation
def discard(invocation: Invocation, candidate_id: str) -> None:
    """Give a candidate up: its files are removed, its record stays."""
    from palyra.skills.build.generation import CandidateState

    state = CandidateState.DISCARDED
    candidate = _candidates(invocation).discard(candidate_id) or {"id": candidate_id, "state": state}
    invocation.output.data({"candidate": candidate}, lambda _: f"{candidate_id} is {state}")
