"""JSON Schema, draft 2020-12, closed to the outside: a schema can't make us fetch anything."""

from typing import Any

import jsonschema_rs

from palyra.errors import Failed, InvalidInput

_SHOWN_CHARS = 200


class InvalidSchema(InvalidInput):
    code = "schema.invalid"
    hint = "write a self-contained JSON Schema, draft 2020-12: references to other documents are not followed"


class SchemaMismatch(Failed):
    code = "schema.mismatch"
    hint = "the value must fit the schema at the place named"

    def __init__(self, message: str, pointer: str) -> None:
        super().__init__(message)
        self.pointer = pointer


class SchemaCheck:
    """One compiled schema. Compiling costs milliseconds and checking microseconds: keep it."""

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            # The linear-time engine: a schema's pattern may come from a stranger.
            self._validator = jsonschema_rs.Draft202012Validator(
                schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except ValueError as error:
            raise InvalidSchema(f"not a usable schema: {str(error)[:_SHOWN_CHARS]}") from error

    def require(self, value: Any) -> None:
        if self._validator.is_valid(value):
            return
        first = next(iter(self._validator.iter_errors(value)))
        pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in first.instance_path)
        where = pointer or "the top level"
        raise SchemaMismatch(f"{first.message[:_SHOWN_CHARS]} (at {where})", pointer)
