"""QR codes by the ``segno`` package, imported on first use."""

import io
from typing import Final

from palyra.secret import Secret

# Survives a smudge, and still fits a terminal of 80 columns.
_ERROR_CORRECTION: Final = "m"
_BORDER: Final = 2
_SVG_SCALE: Final = 4


def qr_terminal(text: Secret) -> str:
    """Two rows of modules a line, in half blocks: for a terminal whose background is dark or light."""
    import segno

    out = io.StringIO()
    segno.make(text.reveal(), error=_ERROR_CORRECTION, micro=False).terminal(out, border=_BORDER, compact=True)
    return out.getvalue()


def qr_svg(text: Secret) -> str:
    """An SVG element without a document around it, dark on white whatever the page looks like."""
    import segno

    out = io.BytesIO()
    segno.make(text.reveal(), error=_ERROR_CORRECTION, micro=False).save(
        out, kind="svg", border=_BORDER, scale=_SVG_SCALE, xmldecl=False, light="#fff", dark="#000", nl=False
    )
    return out.getvalue().decode()
