"""The console's JSON routes are in the document of the API."""

from starlette.routing import Route

from palyra.server.console.app import JSON_PREFIX, ConsoleApp, describe_routes
from palyra.server.http.app import TABLES
from palyra.server.http.openapi import openapi_document


def test_every_json_route_of_the_console_is_described_and_no_other() -> None:
    served = {
        (method, route.path)
        for route in ConsoleApp(None).routes()  # type: ignore[arg-type]
        if isinstance(route, Route) and route.path.startswith(JSON_PREFIX)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {(route.method, route.path) for route in describe_routes() if route.path.startswith(JSON_PREFIX)}
    assert described == served


def test_the_document_holds_both_doors_and_names_that_do_not_clash() -> None:
    document = openapi_document(TABLES, version="1", elsewhere=describe_routes())
    names = [one["operationId"] for path in document["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))
    decide = document["paths"]["/console/v1/session"]["post"]
    assert decide["security"] == [] and "requestBody" in decide
