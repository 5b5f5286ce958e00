"""The document at /openapi.json: whole, sound, and about the routes that are served."""

import re
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from fakes.raw_http import ask
from palyra.server.http.app import PROBES, PROTOCOL, TABLES, create_app
from palyra.server.http.openapi import openapi_document
from palyra.server.http.route_schema import NotDescribed, describe

DOCUMENT = openapi_document(TABLES, version="1")


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.promise("P-documented")
def test_every_route_that_is_served_is_described_and_no_other() -> None:
    app = create_app(None)  # type: ignore[arg-type]
    assert isinstance(app, Starlette)
    served = {
        (method, route.path.replace("{ref:path}", "{scope}/{key}"))
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described_by_itself = {(method, path) for method, path, _ in PROTOCOL}
    assert served - described_by_itself == {(method, path) for method, path, _ in operations()}
    assert all(operation["summary"] for _, _, operation in operations())


def test_operations_have_names_of_their_own() -> None:
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names)) > 50


def test_every_route_but_the_probes_wants_a_token() -> None:
    free = {path for _, path, operation in operations() if not operation["security"]}
    assert free == {path for _, path, _ in PROBES}


def test_every_reference_leads_somewhere_and_every_schema_is_sound() -> None:
    found: list[str] = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                found.append(value["$ref"])
            for one in value.values():
                look(one)
        elif isinstance(value, list):
            for one in value:
                look(one)

    look(DOCUMENT)
    schemas = DOCUMENT["components"]["schemas"]
    assert {name.rpartition("/")[2] for name in found} <= schemas.keys()
    for schema in schemas.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})


def test_every_part_of_a_path_is_a_parameter() -> None:
    for _, path, operation in operations():
        named = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))


def test_bodies_that_are_closed_are_shown_closed() -> None:
    content = DOCUMENT["paths"]["/v1/runs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert DOCUMENT["components"]["schemas"][content["$ref"].rpartition("/")[2]]["additionalProperties"] is False


def test_a_table_of_another_door_joins_with_its_own_access() -> None:
    @describe("Shows a page's data.", data=dict[str, int], access="session")
    async def show_page(_service: object, _request: object) -> None: ...

    document = openapi_document([[("GET", "/console/v1/page/{number}", show_page)]], version="1")
    operation = document["paths"]["/console/v1/page/{number}"]["get"]
    assert operation["security"] == [{"session": []}]


def test_a_route_without_a_description_is_refused() -> None:
    async def silent(_service: object, _request: object) -> None: ...

    with pytest.raises(NotDescribed):
        openapi_document([[("GET", "/silent", silent)]], version="1")


async def test_it_is_served_without_a_token_and_without_parameters() -> None:
    app = create_app(SimpleNamespace())  # type: ignore[arg-type]
    served = await ask(app, "GET", "/openapi.json")
    assert (served.status, served.document["openapi"]) == (200, "3.1.0")
    assert (await ask(app, "GET", "/openapi.json?colour=red")).code == "http.wrong_shape"
