from typing import Any

import pytest

from palyra.ids import ToolName
from palyra.pipeline.domain.spec import ToolCapability, ToolMetadata, ToolSpec
from palyra.server.mcp.client_view import client_schema, take_image, tool_document, without_image

PICTURE: dict[str, Any] = {
    "type": "object",
    "properties": {"image_base64": {"type": "string"}, "media_type": {"type": "string"}, "width": {"type": "integer"}},
    "required": ["image_base64", "media_type", "width"],
}


def spec(*capabilities: ToolCapability, **more: Any) -> ToolSpec:
    return ToolSpec(
        name=ToolName("x.y_z"),
        title="X",
        description="Does x.",
        input_schema={"type": "object"},
        output_schema=more.pop("output_schema", {"type": "object"}),
        metadata=ToolMetadata(capabilities=frozenset(capabilities), grave=more.pop("grave", False)),
        executor="x",
        **more,
    )


def hints_of(tool: ToolSpec) -> dict[str, Any]:
    hints: dict[str, Any] = tool_document(tool)["annotations"]
    return hints


@pytest.mark.promise("P-mcp-client")
@pytest.mark.parametrize(
    ("capabilities", "read_only", "open_world"),
    [
        ((), True, False),
        ((ToolCapability.FILESYSTEM_READ,), True, False),
        ((ToolCapability.FILESYSTEM_READ, ToolCapability.FILESYSTEM_WRITE), False, False),
        ((ToolCapability.NETWORK,), False, True),
        ((ToolCapability.BROWSER,), False, True),
        ((ToolCapability.PROCESS_EXEC,), False, False),
        ((ToolCapability.SECRETS_READ,), False, False),
        ((ToolCapability.CHANNELS,), False, True),
    ],
)
def test_hints_follow_from_what_a_tool_can_touch(
    capabilities: tuple[ToolCapability, ...], read_only: bool, open_world: bool
) -> None:
    hints = hints_of(spec(*capabilities))
    assert (hints["readOnlyHint"], hints["destructiveHint"]) == (read_only, not read_only)
    assert hints["openWorldHint"] is open_world


def test_a_tool_that_ends_something_or_is_grave_is_not_called_harmless() -> None:
    assert not hints_of(spec(ToolCapability.ARTIFACTS_READ, changes_state=True))["readOnlyHint"]
    assert not hints_of(spec(grave=True))["readOnlyHint"]
    assert hints_of(spec(ToolCapability.PROCESS_EXEC, idempotent=True))["idempotentHint"]


def test_a_schema_that_is_no_object_is_wrapped_in_one() -> None:
    shown = tool_document(spec(output_schema={"type": "array"}))
    assert shown["name"] == "x_y__z" and shown["outputSchema"]["required"] == ["result"]
    assert client_schema({"type": "object", "properties": {}}) == {"type": "object", "properties": {}}


def test_a_picture_is_taken_out_of_schema_and_result() -> None:
    assert without_image(PICTURE)["required"] == ["media_type", "width"]
    rest, image = take_image(PICTURE, {"image_base64": "aGk=", "media_type": "image/png", "width": 1})
    assert rest == {"media_type": "image/png", "width": 1}
    assert image == {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def test_only_a_declared_image_is_one() -> None:
    result = {"image_base64": "aGk=", "media_type": "image/png"}
    assert take_image({"type": "object"}, result) == (result, None)
    assert take_image(PICTURE, {**result, "media_type": "text/html"})[1] is None
    assert take_image(PICTURE, [1])[1] is None
