"""Images in results: a tool returns one if its output schema has the properties ``image_base64`` and ``media_type``.

A client gets it as image content, which a model can look at, and not a second time as text.
"""

from typing import Any, Final

import msgspec

DATA: Final = "image_base64"
MEDIA_TYPE: Final = "media_type"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    data: str
    media_type: str


def carries_image(schema: dict[str, Any]) -> bool:
    properties: dict[str, Any] = schema.get("properties", {})
    return {DATA, MEDIA_TYPE} <= properties.keys()


def without_image(schema: dict[str, Any]) -> dict[str, Any]:
    if not carries_image(schema):
        return schema
    properties = {name: part for name, part in schema["properties"].items() if name != DATA}
    required = [name for name in schema.get("required", []) if name != DATA]
    return {**schema, "properties": properties, "required": required}


def take_image(schema: dict[str, Any], result: Any) -> tuple[Any, Image | None]:
    """The result without its picture, and the picture; None where there is none."""
    if not carries_image(schema) or not isinstance(result, dict):
        return result, None
    data, media_type = result.get(DATA), result.get(MEDIA_TYPE)
    rest = {name: value for name, value in result.items() if name != DATA}
    if not isinstance(data, str) or not isinstance(media_type, str) or not media_type.startswith("image/"):
        return rest, None
    return rest, Image(data=data, media_type=media_type)
