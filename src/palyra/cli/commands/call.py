"""``palyra call`` and ``palyra tools``: make one tool call, and list the tools."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, open_client, pass_invocation, tell_of_newer_settings
from palyra.cli.terminal import command_line, read_text_argument
from palyra.errors import Failed
from palyra.limits import MAX_APPROVAL_WAIT_MS, MAX_CALL_TIMEOUT_MS, MAX_HTTP_BODY_BYTES
from palyra.visible_text import escape, escape_block, render_fields, spell_json

if TYPE_CHECKING:
    from palyra.client.protocol import ApiError
    from palyra.client.views import CallView, ToolView

_MS_PER_SECOND = 1000
_SHORT_DIGEST_CHARS = 12


wait_option = click.option(
    "--wait",
    type=click.FloatRange(0, MAX_APPROVAL_WAIT_MS / _MS_PER_SECOND),
    metavar="SECONDS",
    help="Wait this long for a person's approval, if one is needed.",
)


def timeout_option(help_text: str) -> Callable[..., Any]:
    kind = click.FloatRange(0, MAX_CALL_TIMEOUT_MS / _MS_PER_SECOND, min_open=True)
    return click.option("--timeout", type=kind, metavar="SECONDS", help=help_text)


class AttestationNotSaved(Failed):
    code = "cli.attestation_not_saved"
    hint = "the call itself has ended; its attestation is also in the JSON document of the call"


@click.command()
@click.argument("tool")
@click.option("--input", "source", default="{}", metavar="JSON|@FILE|-", help="Arguments; sent as typed.")
@click.option("--principal", default="agent:cli", show_default=True, help="On whose behalf.")
@click.option("--run-id", metavar="RUN", help="Count the call in this run's budget.")
@click.option("--new-run", is_flag=True, help="Open a run for it, with a budget of its own.")
@click.option("--session", metavar="NAME", help="Approvals of scope session hold within it.")
@wait_option
@timeout_option("End the call after this long.")
@click.option("--tier", type=click.Choice(("worker",)), help="Run it on a worker of the fleet, if policy agrees.")
@click.option("--attestation", type=click.Path(path_type=Path), metavar="FILE", help="Save the signed statement here.")
@pass_invocation
def call(
    invocation: Invocation,
    tool: str,
    source: str,
    principal: str,
    run_id: str | None,
    new_run: bool,
    session: str | None,
    wait: float | None,
    timeout: float | None,
    attestation: Path | None,
    tier: str | None,
) -> None:
    """Ask for one tool call and print what it returned.

    Exits with 3 when policy denies the call and with 4 when a person has to approve it first.
    """
    from palyra.client.protocol import ApiError, NeedsApprovalError

    if new_run and run_id:
        raise click.UsageError("--new-run and --run-id exclude each other")
    arguments_json = read_text_argument(source, MAX_HTTP_BODY_BYTES)
    try:
        with open_client(invocation) as client, invocation.output.working(f"calling {escape(tool)}"):
            if new_run:
                run_id = client.start_run(principal=principal).run_id
                invocation.output.note(f"opened run {escape(run_id)}")
            made = client.call(
                tool,
                arguments_json=arguments_json,
                principal=principal,
                run_id=run_id,
                session=session,
                channel="cli",
                wait_ms=milliseconds(wait),
                timeout_ms=milliseconds(timeout),
                tier=tier,
            )
    except ApiError as error:
        if isinstance(error, NeedsApprovalError) and error.approval_id:
            command = approve_command(invocation, error.approval_id)
            error.hint = (
                f"a person can approve it with `{command}`; then make the same call again, or add --wait SECONDS"
            )
        _explain_ending(invocation, error, attestation)
        tell_of_newer_settings(invocation)
        raise
    if attestation is not None:
        _save_attestation(made, attestation)
    invocation.output.note(decision_line(made))
    invocation.output.data(made.document, lambda _: render_result(made.result))


def decision_line(call: "CallView") -> str:
    """Write the decision, its policies and the end of the call in one line."""
    words = [f"{escape(call.tool)} {escape(call.status)}"]
    if call.decision is not None:
        by = ", ".join(map(escape, call.decision.policies)) or "no policy"
        if call.approval_id is not None and call.status != "needs_approval":
            words.append(f"approval {escape(call.approval_id)}, asked for by {by}")
        else:
            words.append(f"{escape(call.decision.outcome)} by {by}")
        words.append(f"bundle {escape(call.decision.bundle_digest[:_SHORT_DIGEST_CHARS])}")
    if call.duration_ms is not None:
        words.append(f"{call.duration_ms:g} ms")
    words.append(f"call {escape(call.call_id)}")
    return "; ".join(words)


def render_result(result: Any) -> str:
    return escape_block(result) if isinstance(result, str) else spell_json(result)


def approve_command(invocation: Invocation, approval_id: str) -> str:
    """Return the command that approves, with the locations of this invocation."""
    return command_line("palyra", *invocation.location_options(), "approvals", "approve", approval_id)


def _explain_ending(invocation: Invocation, error: "ApiError", attestation: Path | None) -> None:
    """Print the decision of a call that failed, which was still recorded, and save its attestation if it has one."""
    ended = error.call
    if ended is None:
        return
    error.details["call"] = ended.document
    if attestation is not None and ended.attestation is not None:
        _save_attestation(ended, attestation)
    if not invocation.output.json:
        invocation.output.note(decision_line(ended))


def _save_attestation(call: "CallView", path: Path) -> None:
    if call.attestation is None:
        raise AttestationNotSaved("the call has no attestation", call_id=call.call_id)
    try:
        path.write_bytes(json.dumps(call.attestation).encode() + b"\n")
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise AttestationNotSaved(message, call_id=call.call_id) from error


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * _MS_PER_SECOND)) if seconds else 0


@click.group()
def tools() -> None:
    """List and describe tools."""


@tools.command("list")
@pass_invocation
def list_tools(invocation: Invocation) -> None:
    """List every tool, where it runs and what it can touch."""
    with open_client(invocation) as client:
        found = client.tools()
    rows = [(tool.name, tool.tier, ", ".join(tool.capabilities) or "nothing", tool.title) for tool in found]
    invocation.output.listing("tools", found, ("tool", "tier", "can touch", "what it does"), rows)


@tools.command("show")
@click.argument("name")
@pass_invocation
def show_tool(invocation: Invocation, name: str) -> None:
    """Describe one tool, with the schemas of what it takes and returns."""
    with open_client(invocation) as client:
        found = client.tool(name)
    invocation.output.data(found.document, lambda _: render_tool(found))


def render_tool(tool: "ToolView") -> str:
    return render_fields(
        (
            ("tool", escape(tool.name)),
            ("title", escape(tool.title)),
            ("description", escape_block(tool.description)),
            ("tier", escape(tool.tier)),
            ("can touch", escape(", ".join(tool.capabilities) or "nothing")),
            ("sensitive", "yes" if tool.sensitive else "no"),
            ("takes", spell_json(tool.input_schema)),
            ("returns", spell_json(tool.output_schema)),
        )
    )
