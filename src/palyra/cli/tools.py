"""``palyra tools``: what there is to call."""

from typing import TYPE_CHECKING, Any

import click

from palyra.cli.invocation import Invocation, json_option, pass_invocation
from palyra.cli.terminal import labelled, pretty_json, shown, shown_block

if TYPE_CHECKING:
    from palyra.client.views import ToolView


@click.group()
def tools() -> None:
    """List and describe tools."""


@tools.command("list")
@json_option
@pass_invocation
def list_tools(invocation: Invocation) -> None:
    """List every tool, where it runs and what it can touch."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.tools()

    def as_table(_: Any) -> None:
        rows = [(tool.name, tool.tier, ", ".join(tool.capabilities) or "nothing", tool.title) for tool in found]
        invocation.output.table(("tool", "tier", "can touch", "what it does"), rows)

    invocation.output.data({"tools": [tool.document for tool in found]}, as_table)


@tools.command("show")
@click.argument("name")
@json_option
@pass_invocation
def show_tool(invocation: Invocation, name: str) -> None:
    """Describe one tool, with the schemas of what it takes and returns."""
    from palyra.cli.door import open_client

    with open_client(invocation) as client:
        found = client.tool(name)
    invocation.output.data(found.document, lambda _: render_tool(found))


def render_tool(tool: "ToolView") -> str:
    return labelled(
        (
            ("tool", shown(tool.name)),
            ("title", shown(tool.title)),
            ("description", shown_block(tool.description)),
            ("tier", shown(tool.tier)),
            ("can touch", shown(", ".join(tool.capabilities) or "nothing")),
            ("sensitive", "yes" if tool.sensitive else "no"),
            ("takes", pretty_json(tool.input_schema)),
            ("returns", pretty_json(tool.output_schema)),
        )
    )
