"""Routes tell what they take and give."""

import pytest

from palyra.server.http.route_schema import NotDescribed, describe, find_shape


async def test_what_was_told_is_found_and_the_function_is_the_same() -> None:
    async def endpoint(_service: object, _request: object) -> str:
        return "as before"

    described = describe("Does a thing.", status=201, access="open")(endpoint)
    assert described is endpoint and await described(None, None) == "as before"
    shape = find_shape(endpoint)
    assert (shape.summary, shape.status, shape.access, shape.body) == ("Does a thing.", 201, "open", None)


def test_a_route_that_tells_nothing_is_a_mistake() -> None:
    with pytest.raises(NotDescribed, match="no @describe"):
        find_shape(lambda silent: silent)


def test_a_field_that_no_route_has_is_a_mistake() -> None:
    with pytest.raises(TypeError):
        describe("Does a thing.", colour="red")(lambda: None)
