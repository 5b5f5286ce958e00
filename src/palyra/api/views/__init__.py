"""The data of the API's answers, as types: mypy holds the routes to them, and ``/openapi.json`` shows them."""
