"""Trying a skill on the author's machine, in the runtime that the daemon uses: run, test."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.commands.skills.author import build_project, built_artifact, of_a_project
from palyra.cli.invocation import Invocation, pass_invocation
from palyra.cli.terminal import SourceUnreadable, read_file, read_text_argument
from palyra.errors import ExitCode, PalyraError
from palyra.limits import MAX_PLUGIN_TOOL_INPUT_BYTES
from palyra.visible_text import escape, spell_json

if TYPE_CHECKING:
    from palyra.skills.build.project_files import Project
    from palyra.skills.build.trial_host import LocalHost
    from palyra.skills.package.artifact import SkillArtifact
    from palyra.skills.package.manifest import SkillTool
    from palyra.wasm.domain.grants import CapabilityGrantSet
    from palyra.wasm.domain.outcome import LogLine, WasmOutcome
    from palyra.wasm.runtime import WasmRuntime

_MAX_SECRETS_BYTES = 64 * 1024


@click.command("run")
@click.option("--tool", "tool_id", metavar="ID", help="The tool; needed where the skill has several.")
@click.option("--input", "given", default="{}", show_default=True, metavar="JSON|@FILE|-", help="The tool's input.")
@click.option(
    "--config",
    "configured",
    default="{}",
    metavar="JSON|@FILE|-",
    help="What an operator would have set; default: what skill.toml presets.",
)
@click.option(
    "--grant",
    "words",
    multiple=True,
    metavar="KIND[:NAME]",
    help="What the trial may use of what skill.toml asks for: http, secret, storage, channel, or all. "
    "Without it: storage and channel.",
)
@click.option(
    "--secrets",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A JSON object of secrets and their values, for granted secrets.",
)
@of_a_project
@pass_invocation
def run(
    invocation: Invocation,
    tool_id: str | None,
    given: str,
    configured: str,
    words: tuple[str, ...],
    secrets: Path | None,
    folder: Path,
) -> None:
    """Run a tool of the project here, as the daemon would, with the grants shown.

    Storage lies in build/storage. A granted host is really asked, over HTTPS and without the egress policy.
    """
    from palyra.skills.build.project import BUILD_FOLDER
    from palyra.skills.build.project_files import read_project, require_plain
    from palyra.skills.build.trial import check_input, check_output, choose_tool, describe_grants, trial_grants
    from palyra.skills.build.trial_host import LocalHost
    from palyra.skills.limits import MAX_CONFIGURATION_BYTES
    from palyra.strict_json import parse_strict
    from palyra.wasm.domain.outcome import GuestFailed

    project = read_project(folder)
    asked = project.manifest.capabilities
    tool = choose_tool(project.manifest, tool_id)
    configuration = parse_strict(read_text_argument(configured, MAX_CONFIGURATION_BYTES))
    value = parse_strict(read_text_argument(given, MAX_PLUGIN_TOOL_INPUT_BYTES))
    data = check_input(project.manifest, tool, value, configuration)
    grants = trial_grants(asked, words)
    artifact = fresh_artifact(invocation, project)
    invocation.output.note("granted: " + (", ".join(map(escape, describe_grants(grants))) or "nothing"))
    storage = require_plain(folder, folder / BUILD_FOLDER / "storage")
    host = LocalHost(asked, folder=storage, secrets=_secrets(project, secrets))

    async def tried() -> "WasmOutcome":
        async with local_runtime() as runtime:
            return await call(runtime, artifact, tool, data, grants, host)

    try:
        with invocation.output.working(f"running {tool.id}"):
            outcome = asyncio.run(tried())
    except PalyraError as error:
        _say(invocation, host, getattr(error, "logs", ()))
        if isinstance(error, GuestFailed):
            error.hint = "the message is the skill's own"
        raise
    _say(invocation, host, outcome.logs)
    output = check_output(tool, outcome.output)
    usage = outcome.usage
    invocation.output.note(
        f"fuel {usage.fuel_used:,}, memory {usage.peak_memory_bytes:,} bytes, {usage.duration_us / 1000:.1f} ms, "
        f"{usage.host_calls} host calls"
    )
    found = {"tool": tool.id, "output": output, "usage": usage, "logs": outcome.logs, "grants": describe_grants(grants)}
    invocation.output.data(found, lambda _: spell_json(output))


def _say(invocation: Invocation, host: "LocalHost", logs: "Iterable[LogLine]") -> None:
    """Print logs, failures and messages, of a failed call too: its author looks for the cause there."""
    for line in logs:
        invocation.output.note(f"{line.level}: {escape(line.text)}")
    for failure in host.failures:
        invocation.output.note(f"http: {escape(failure)}")
    for channel, text in host.messages:
        invocation.output.note(f"message to {escape(channel)}: {escape(text)}")


@click.command("test")
@of_a_project
@pass_invocation
def test(invocation: Invocation, folder: Path) -> int:
    """Run the project's examples. Nothing leaves the machine: requests are answered from the example."""
    from palyra.skills.build.project_files import read_project

    project = read_project(folder)
    artifact = fresh_artifact(invocation, project)
    with invocation.output.working("running the examples"):
        results = asyncio.run(run_examples(project, artifact))
    failed = sum(1 for problems in results.values() if problems)

    def as_text(_: Any) -> None:
        for name, problems in results.items():
            invocation.output.text(f"{'FAILED' if problems else 'passed'}  {escape(name)}")
            for problem in problems:
                invocation.output.text(f"        {escape(problem)}")
        none = "there are no examples: put one into examples/, as NAME.json"
        invocation.output.text(f"{len(results) - failed} of {len(results)} examples passed" if results else none)

    examples = [{"name": name, "passed": not found, "problems": found} for name, found in results.items()]
    invocation.output.data({"passed": len(results) - failed, "failed": failed, "examples": examples}, as_text)
    return ExitCode.FAILED if failed else ExitCode.DONE


def fresh_artifact(invocation: Invocation, project: "Project") -> "SkillArtifact":
    """Return the last build, or a new one if the project has changed since."""
    from palyra.cli.commands.skills.author import NotBuilt

    try:
        return built_artifact(invocation, project)
    except NotBuilt:
        return build_project(invocation, project)


async def run_examples(project: "Project", artifact: "SkillArtifact") -> dict[str, list[str]]:
    """Each example with what was wrong about it. Every example has storage of its own."""
    from palyra.skills.build.trial import ALL, check_input, check_output, choose_tool, shortcomings, trial_grants
    from palyra.skills.build.trial_host import LocalHost

    asked = project.manifest.capabilities
    grants = trial_grants(asked, (ALL,))
    results: dict[str, list[str]] = {}
    async with local_runtime() as runtime:
        for name, example in project.examples.items():
            stored = {key: text.encode() for key, text in example.storage.items()}
            host = LocalHost(asked, stored=stored, exchanges=example.http)
            output, error = None, None
            logs: tuple[LogLine, ...] = ()
            try:
                tool = choose_tool(project.manifest, example.tool)
                data = check_input(project.manifest, tool, example.input, example.config)
                output = check_output(tool, (await call(runtime, artifact, tool, data, grants, host)).output)
            except PalyraError as problem:
                error, logs = problem.message, getattr(problem, "logs", ())
            found = shortcomings(
                example,
                output=output,
                error=error,
                stored=host.stored,
                messages=host.messages,
                unused=len(host.unused_exchanges),
            )
            on_the_way = [*(f"{line.level}: {line.text}" for line in logs), *(f"http: {one}" for one in host.failures)]
            results[name] = [*found, *on_the_way] if found else []
    return results


async def call(
    runtime: "WasmRuntime",
    artifact: "SkillArtifact",
    tool: "SkillTool",
    data: bytes,
    grants: "CapabilityGrantSet",
    host: "LocalHost",
) -> "WasmOutcome":
    from palyra.skills.build.trial import trial_limits

    limits, timeout_ms = trial_limits(artifact.manifest.capabilities)
    module = await runtime.compile(artifact.modules[tool.module])
    return await runtime.run(
        module, tool=tool.id, input=data, grants=grants, services=host, limits=limits, timeout_ms=timeout_ms
    )


@asynccontextmanager
async def local_runtime() -> AsyncIterator["WasmRuntime"]:
    """One worker, and a cache of compiled modules in the user's cache folder: an interpreter takes long to compile."""
    from platformdirs import user_cache_path

    from palyra.skills.limits import MAX_FUEL_BUDGET
    from palyra.wasm.domain.limits import PoolSettings, RuntimeLimits
    from palyra.wasm.runtime import WasmRuntime

    folder = user_cache_path("palyra") / "trials"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    runtime = WasmRuntime(
        cache_directory=folder / "compiled",
        key=_cache_key(folder / "cache.key"),
        limits=RuntimeLimits(fuel_budget=MAX_FUEL_BUDGET),
        pool=PoolSettings(ready=1),
    )
    try:
        yield runtime
    finally:
        await runtime.close()


def _cache_key(path: Path) -> Any:
    """Read or make the key of the cache. A program that can write this file can write all files of this user."""
    import contextlib
    import os
    import secrets

    from palyra.secret import Secret

    with contextlib.suppress(FileExistsError):
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(temporary, path)
        finally:
            temporary.unlink()
    return Secret(path.read_text("ascii"))


def _secrets(project: "Project", file: Path | None) -> Mapping[str, str]:
    """By whole reference; a key alone is the skill's own."""
    import msgspec

    if file is None:
        return {}
    try:
        given = msgspec.json.decode(read_file(file, _MAX_SECRETS_BYTES), type=dict[str, str])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = 'name a file such as {"TOKEN": "..."}: each secret that the skill asks for, by its key'
        raise SourceUnreadable(f"{file} is not a JSON object of texts", hint=hint) from error
    asked = project.manifest.capabilities.secrets
    return {ref: value for ref in asked for key, value in given.items() if key in (ref, ref.rpartition("/")[2])}
