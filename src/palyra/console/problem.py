"""Errors as problem documents (RFC 9457), with our codes in them."""

from typing import Any

import msgspec
from starlette.responses import Response

from palyra.api.http import EXIT_CODE_HEADER
from palyra.errors import PalyraError, exit_code_of

MEDIA_TYPE = "application/problem+json"


def problem_of(error: PalyraError) -> dict[str, Any]:
    shown = error.as_dict()
    return {
        "type": f"urn:palyra:error:{shown['code']}",
        "title": shown["code"],
        "status": error.http_status,
        "detail": error.message,
        **shown,
    }


def answer_problem(error: PalyraError) -> Response:
    headers = {EXIT_CODE_HEADER: str(int(exit_code_of(error))), "Cache-Control": "no-store"}
    if (seconds := error.details.get("retry_after_seconds")) is not None:
        headers["Retry-After"] = str(seconds)
    document = problem_of(error)
    return Response(msgspec.json.encode(document), document["status"], headers=headers, media_type=MEDIA_TYPE)
