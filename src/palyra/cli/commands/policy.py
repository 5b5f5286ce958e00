"""``palyra policy``: check, explain, test and replay the rules, without a daemon."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, pass_invocation, running_daemon
from palyra.errors import Failed, InvalidInput

if TYPE_CHECKING:
    from palyra.policy.cedar import CedarEngine
    from palyra.policy.dry_run import Failure, RecordedDecision, ToolFacts
    from palyra.policy.request import PolicyRequest

_FOLDER = click.Path(path_type=Path)
# Events read from the journal at a time.
_PAGE = 1_000
# How long a daemon gets to take up a file that was just saved: it waits for writes to settle, and looks every second
# for a directory that was not there. It is queried often, so that the usual case is quick.
_TAKE_UP_SECONDS = 3.0
_LOOK_SECONDS = 0.1


class ExpectationsFailed(Failed):
    code = "policy.expectations_failed"
    hint = "change the policies, or the expectation if the new answer is the right one"


class UnreadableFile(InvalidInput):
    code = "policy.unreadable_file"
    hint = "name a TOML or JSON file of expectations"


@click.group()
def policy() -> None:
    """Check, explain, test and replay policies."""


@policy.command()
@click.argument("folder", metavar="[DIR]", required=False, type=_FOLDER)
@pass_invocation
def check(invocation: Invocation, folder: Path | None) -> None:
    """Validate the policies in DIR, or those of the settings, together with the baseline.

    Every error is shown with its file, line and column; the exit code is then 2. If a daemon is running, the answer
    also says whether these policies are in force there.
    """
    engine = _engine(invocation, folder)
    files: dict[str, int] = {name: 0 for name, _ in engine.bundle.files}
    for each in engine.policies.values():
        files[each.location.file] += 1
    in_force = None if folder else _in_force(invocation, engine.bundle_digest)
    data = {
        "bundle_digest": engine.bundle_digest,
        "directory": str(_folder(invocation, folder)),
        "files": [{"file": name, "policies": count} for name, count in files.items()],
        "policies": len(engine.policies),
        "in_force": in_force,
    }

    def render(_: Any) -> str:
        listed = "\n".join(f"  {name}: {count}" for name, count in files.items())
        said = {None: "", True: "; in force", False: "; not in force: the daemon has other policies or settings"}
        verdict = f"{len(engine.policies)} policies are valid{said[in_force]}"
        return f"{verdict}\n{listed}\nbundle {engine.bundle_digest}"

    invocation.output.data(data, render)


@policy.command()
@click.option("--principal", required=True, metavar="P", help="Who asks, such as agent:bot or user:alice.")
@click.option("--tool", required=True, metavar="TOOL", help="Which tool.")
@click.option("--channel", default="cli", show_default=True, metavar="NAME", help="The channel it comes through.")
@click.option("--approved", is_flag=True, help="As if a person had approved exactly this call.")
@click.option("--input", "arguments", metavar="JSON", help="The call's arguments, for policies that look at them.")
@click.option("--against", metavar="DIR", type=_FOLDER, help="Use the policies in DIR instead of those in force.")
@pass_invocation
def explain(
    invocation: Invocation,
    principal: str,
    tool: str,
    channel: str,
    approved: bool,
    arguments: str | None,
    against: Path | None,
) -> None:
    """Tell why a tool call would be allowed, denied or need approval, and what would change that.

    Nothing is run and nothing is recorded; the exit code is 0 whatever the outcome.
    """
    from palyra.policy.explain import describe_explanation

    engine = _engine(invocation, against)
    request = _tool_request(invocation, principal, tool, channel, approved=approved, arguments=arguments)
    invocation.output.data(engine.explain(request), describe_explanation)


@policy.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FOLDER)
@click.option("--against", metavar="DIR", type=_FOLDER, help="Use the policies in DIR instead of those in force.")
@pass_invocation
def test(invocation: Invocation, files: tuple[Path, ...], against: Path | None) -> None:
    """Run files of expectations: requests, each with the outcome it must have.

    \b
    A file is TOML (or JSON of the same shape):
      version = 1
      [[expect]]
      principal = "agent:bot"
      tool = "fs.write"          # or: action = "journal.read"
      outcome = "needs_approval" # allow, deny
      policies = ["baseline.sensitive-needs-approval"]   # optional
      channel = "mcp"            # optional, as are name, approved, context
    """
    from palyra.policy.dry_run import parse_expectations, run_expectations

    engine = _engine(invocation, against)
    expectations = tuple(each for file in files for each in parse_expectations(str(file), _text(file)))
    failures = tuple(run_expectations(expectations, engine, engine.bundle.directory, _tool_facts))
    if failures:
        raise _failed(failures, len(expectations))
    data = {"expectations": len(expectations), "failed": 0, "bundle_digest": engine.bundle_digest}
    invocation.output.data(data, lambda _: f"{len(expectations)} expectations hold")


@policy.command()
@click.option("--against", required=True, metavar="DIR", type=_FOLDER, help="The proposed policies.")
@click.option("--since", default=0, metavar="SEQ", type=click.IntRange(min=0), help="Only events after this one.")
@pass_invocation
def replay(invocation: Invocation, against: Path, since: int) -> None:
    """Decide the calls in the journal again under the policies in DIR; list every verdict that changes.

    Each request is used as it was recorded: its arguments, the attributes of its tool, and the sets its principal,
    tool and channel were in. So what is compared is the policies. A change of the settings (tools.allowed and the
    like) since then plays no part. Records that cannot be decided again are listed too.
    """
    from palyra.policy.dry_run import VerdictChanged
    from palyra.policy.dry_run import replay as replay_all

    engine = _engine(invocation, against)
    records = 0

    def counted() -> "Iterator[RecordedDecision]":
        nonlocal records
        for record in _recorded(invocation, since):
            records += 1
            yield record

    with invocation.output.working("deciding the recorded calls again"):
        findings = list(replay_all(counted(), engine))
    changed = sum(isinstance(finding, VerdictChanged) for finding in findings)
    data = {
        "replayed": records,
        "changed": changed,
        "not_replayable": len(findings) - changed,
        "findings": findings,
        "bundle_digest": engine.bundle_digest,
    }

    def render(_: Any) -> None:
        rows = [
            (
                each.seq,
                each.call_id,
                each.principal,
                each.resource,
                f"{each.old} -> {each.new}",
                ", ".join(each.new_policies) or "none",
            )
            if isinstance(each, VerdictChanged)
            else (each.seq, each.call_id, "", "", f"{each.old} -> ?", each.why)
            for each in findings
        ]
        if rows:
            invocation.output.table(("seq", "call", "principal", "resource", "verdict", "policies"), rows)
        invocation.output.note(f"{records} calls decided again: {changed} change, {len(findings) - changed} cannot be")

    invocation.output.data(data, render)


def _in_force(invocation: Invocation, bundle_digest: str) -> bool | None:
    """Tell whether the running daemon decides by this bundle, or None if none runs. A file just saved gets a moment."""
    client = running_daemon(invocation)
    if client is None:
        return None
    with client:
        end = time.monotonic() + _TAKE_UP_SECONDS
        while client.status().document["policy"]["bundle_digest"] != bundle_digest:
            if time.monotonic() > end:
                return False
            time.sleep(_LOOK_SECONDS)
    return True


def _folder(invocation: Invocation, folder: Path | None) -> Path:
    return folder or invocation.locations.policy_dir(invocation.settings.policy.dir)


def _engine(invocation: Invocation, folder: Path | None) -> "CedarEngine":
    """Make the engine over a folder. A folder named on the command line must exist."""
    import msgspec

    from palyra.daemon.pipeline_wiring import directory_of
    from palyra.policy.bundle import BadBundle
    from palyra.policy.cedar import CedarEngine
    from palyra.policy.live_policy import DEFAULTS_PREFIX, load_bundle

    place = _folder(invocation, folder)
    proposed = folder is not None
    bundle = load_bundle(place, directory_of(invocation.settings), proposed=proposed, must_exist=proposed)
    try:
        return CedarEngine(bundle)
    except BadBundle as error:
        raise BadBundle(
            tuple(
                problem
                if problem.file.startswith(DEFAULTS_PREFIX)
                else msgspec.structs.replace(problem, file=str(place / problem.file))
                for problem in error.problems
            )
        ) from error


def _tool_request(
    invocation: Invocation, principal: str, tool: str, channel: str, *, approved: bool, arguments: str | None
) -> "PolicyRequest":
    from palyra.daemon.pipeline_wiring import directory_of, workspaces_of
    from palyra.executors.tool_set import builtin_catalog
    from palyra.ids import Principal
    from palyra.pipeline.domain.call import build_tool_entity
    from palyra.pipeline.domain.spec import AccessedResources
    from palyra.pipeline.intake import accept_arguments
    from palyra.policy.request import tool_request

    settings = invocation.settings
    directory = directory_of(settings)
    workspaces = workspaces_of(settings, invocation.state_path, directory)
    asker = Principal.parse(principal)
    entry = builtin_catalog().entry(tool)
    spec = entry.spec
    accepted = None if arguments is None else accept_arguments(spec, entry.input_check, arguments)
    touches = AccessedResources() if accepted is None else spec.touches(accepted.value)
    return tool_request(
        directory.principal(asker),
        build_tool_entity(directory, spec),
        directory.channel(channel),
        approved=approved,
        workspace=workspaces.of(asker),
        run="",
        argument_bytes=0 if accepted is None else len(accepted.canonical),
        paths=touches.paths,
        hosts=touches.hosts,
    )


def _tool_facts(name: str) -> "ToolFacts | None":
    from palyra.executors.tool_set import builtin_catalog
    from palyra.pipeline.domain.call import UnknownTool
    from palyra.policy.dry_run import ToolFacts

    try:
        spec = builtin_catalog().entry(name).spec
    except UnknownTool:
        return None
    return ToolFacts(
        capabilities=frozenset(capability.value for capability in spec.metadata.capabilities),
        sensitive=spec.metadata.sensitive,
        tier=spec.tier.value,
    )


def _text(file: Path) -> str:
    from palyra.policy.limits import MAX_EXPECTATION_FILE_BYTES

    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_EXPECTATION_FILE_BYTES + 1)
        if len(content) > MAX_EXPECTATION_FILE_BYTES:
            raise UnreadableFile(f"{file} is larger than {MAX_EXPECTATION_FILE_BYTES} bytes")
        return content.decode()
    except OSError as error:
        raise UnreadableFile(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{file} is not UTF-8") from error


def _failed(failures: "tuple[Failure, ...]", total: int) -> ExpectationsFailed:
    import msgspec

    shown = "\n".join(f"  {failure}" for failure in failures)
    return ExpectationsFailed(
        f"{len(failures)} of {total} expectations failed\n{shown}",
        failures=[msgspec.to_builtins(failure) for failure in failures],
    )


def _recorded(invocation: Invocation, since: int) -> "Iterator[RecordedDecision]":
    import msgspec

    from palyra.policy.dry_run import RecordedDecision
    from palyra.store.sqlite.store import DATABASE_NAME, SqliteReader

    with SqliteReader(invocation.state_path / DATABASE_NAME) as reader:
        while page := reader.events_since(since, _PAGE, kind="call.decided"):
            for event in page:
                payload = msgspec.json.decode(event.payload)
                yield RecordedDecision(
                    seq=event.seq,
                    call_id=event.call,
                    outcome=str(payload.get("outcome", "")),
                    policies=tuple(map(str, payload.get("policies") or ())),
                    request=payload.get("policy_request"),
                )
            since = page[-1].seq
