"""Bytes from the network: over https, of bounded size, complete or not at all.

``ZEROLM_MIRROR=URL`` names a server that stands in for GitHub's: it is asked for the same paths, and what it
sends must have the same checksums.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection, responses
from typing import IO, Final, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import (
    BaseHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from zerolm.progress import Progress, silent

logger = logging.getLogger(__name__)

TIMEOUT: Final = 30.0
"""Seconds of silence after which a server is given up."""
DEADLINE: Final = 1800.0
"""Seconds after which a download is given up, however busy the server is."""
CHUNK: Final = 1 << 16


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Metered:
    """A stream that counts its bytes and refuses to be longer than ``most``, or shorter than ``whole``.

    Past ``deadline``, a moment of ``time.monotonic``, nothing more is read.
    """

    def __init__(
        self,
        stream: Readable,
        what: str,
        most: int,
        whole: int | None = None,
        progress: Progress = silent,
        deadline: float = math.inf,
    ) -> None:
        if whole is not None and whole > most:
            raise ValueError(f"{what} is of {whole} bytes; at most {most} are read")
        self.what = what
        self._stream, self._most, self._whole, self._progress = stream, most, whole, progress
        self._seen, self._deadline = 0, deadline

    def read(self, size: int = CHUNK, /) -> bytes:
        """At most ``size`` bytes; none at the end."""
        content = self._stream.read(size)
        if time.monotonic() > self._deadline:
            raise TimeoutError
        self._seen += len(content)
        if self._seen > self._most:
            raise ValueError(f"{self.what} is longer than {self._most} bytes, the most that is read")
        if not content and size and self._whole is not None and self._seen < self._whole:
            raise ValueError(f"{self.what} ended after {self._seen} of {self._whole} bytes")
        self._progress(f"fetching {self.what}", self._seen, self._whole or 0)
        return content

    def read_all(self) -> bytes:
        return b"".join(iter(self.read, b""))


class Careful(HTTPRedirectHandler):
    """Follows no redirection from https to anything else, and remembers where it was led."""

    target: str | None = None

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        self.target = newurl
        if urlsplit(newurl).scheme not in ("https", req.type):
            raise URLError("that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def mirrored(url: str) -> str:
    """The address on the mirror that ``ZEROLM_MIRROR`` names, else the address itself."""
    mirror = os.environ.get("ZEROLM_MIRROR")
    if not mirror:
        return url
    try:
        parts = urlsplit(mirror)
    except ValueError:  # brackets that hold no address
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"ZEROLM_MIRROR must be an http or https address, not {mirror!r}")
    return mirror.rstrip("/") + urlsplit(url).path


@contextmanager
def _shut_at(deadline: float) -> Iterator[list[BaseHandler]]:
    """Give handlers whose connections are shut at a moment: whoever waits for a byte then waits no more."""
    sockets: list[socket.socket] = []

    class Plain(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class Secure(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            sockets.append(self.sock)

    class Http(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Plain, req)

    class Https(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Secure, req)

    def shut() -> None:
        for opened in sockets:
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), shut)
    timer.daemon = True
    timer.start()
    try:
        yield [Http(), Https()]
    finally:
        timer.cancel()


@contextmanager
def opened(url: str, most: int, progress: Progress) -> Iterator[Metered]:
    """The content behind an address, of at most ``most`` bytes; ``ValueError`` says why there is none."""
    address = mirrored(url)
    logger.info("asking %s", address)
    request = Request(address, headers={"User-Agent": "zerolm"})
    careful, deadline = Careful(), time.monotonic() + DEADLINE
    try:
        with (
            _shut_at(deadline) as handlers,
            build_opener(careful, *handlers).open(request, timeout=TIMEOUT) as response,
        ):
            length = response.headers["Content-Length"] or ""
            whole = int(length) if length.isdecimal() else None
            yield Metered(response, address, most, whole, progress, deadline)
    except HTTPError as error:
        reason = f"the server answers {error.code} {responses.get(error.code, '')}".rstrip()
        if 300 <= error.code < 400:  # to where no request is made at all
            careful.target = error.headers["Location"]
    except URLError as error:
        reason = str(getattr(error.reason, "strerror", None) or error.reason)
    except TimeoutError:
        reason = f"the server was silent for {TIMEOUT:.0f} seconds"
    except (OSError, HTTPException) as error:
        reason = f"the connection broke: {error}"
    else:
        return
    if time.monotonic() > deadline:
        reason = f"it takes longer than {DEADLINE:.0f} seconds"
    led = f"it redirects to {careful.target[:200]!r}: " if careful.target else ""
    raise ValueError(f"cannot download {address}: {led}{reason}")
