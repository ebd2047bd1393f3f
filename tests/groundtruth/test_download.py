"""Downloads from a server on the loopback: checked, complete, and nothing touched when anything is wrong."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import socket
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request

import pytest
from upstream import (
    ARCHIVE,
    OLDER,
    Answer,
    Member,
    Server,
    gemstones,
    members_of_archai,
    named,
    packed,
    path_of,
    pinned,
    published,
)

from zerolm.groundtruth.cache import cache_folder
from zerolm.groundtruth.download import archive, fetch
from zerolm.groundtruth.download import benchmarks as download
from zerolm.groundtruth.download.benchmarks import download as bring
from zerolm.groundtruth.reader import data_folders as folders_of
from zerolm.groundtruth.reader import read
from zerolm.groundtruth.sources import ARCHAI, SOURCES

FLEXIBERT = path_of("flexibert_glue")
WITHOUT_TORCH = [name for name in OLDER if not SOURCES[name].pinned.path.endswith(".pth")]
TOP = f"archai-{ARCHAI.commit}/{SOURCES['gpt2_wt103'].pinned.path}"


@pytest.fixture(scope="module")
def answers(data_folder: Path) -> dict[str, Answer]:
    return published(data_folder)


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache_folder().glob("*")}


def test_the_older_seven_are_stored_as_they_are_shared(
    server: Server, answers: dict[str, Answer], data_folder: Path
) -> None:
    pytest.importorskip("torch")
    server.answers = answers
    stored = bring(OLDER)
    assert [row.name for row in stored] == OLDER
    assert sorted(server.asked) == sorted(answers)  # one archive for four benchmarks
    assert sorted(files()) == sorted(f"{name}.json" for name in OLDER)
    for row in stored:
        ours = json.loads(Path(row.path).read_text())
        theirs = json.loads((data_folder / f"{row.name}.json").read_text())
        assert ours["architectures"] == theirs["architectures"]
        assert row.sha256 == hashlib.sha256(Path(row.path).read_bytes()).hexdigest()
        assert ours["source"] == row.source == SOURCES[row.name].record()
        assert row.licence == ours["source"]["licence"]
        assert row.fetched
    assert folders_of(None) == (cache_folder(),)
    assert len(read(cache_folder() / "transformer_xl_lm1b.json").architectures) == 183


def test_a_benchmark_of_several_files(server: Server, decoders_folder: Path) -> None:
    files_of = gemstones(decoders_folder)
    with pinned("gemstones", files_of) as server.answers:
        (row,) = bring(["gemstones"])
        assert sorted(server.asked) == sorted(server.answers)
        assert len(server.asked) == 1 + 3 * 22
        ours = json.loads(Path(row.path).read_text())
        theirs = json.loads((decoders_folder / "gemstones.json").read_text())
        assert ours["architectures"] == theirs["architectures"]
        assert ours["source"]["file"] == theirs["source"]["file"]
        assert [row.fetched for row in bring(["gemstones"])] == [False]
        good, (first, *_, last) = dict(server.answers), server.answers
        for path in (first, last):
            server.answers[path] = good[path] + b" "
            fails("wrong checksum", "gemstones")
            del server.answers[path]
            fails("404", "gemstones")
            server.answers[path] = good[path]


def test_what_is_up_to_date_is_kept(server: Server, answers: dict[str, Answer]) -> None:
    server.answers = answers
    assert [row.fetched for row in bring(WITHOUT_TORCH)] == [True] * 5
    before = files()
    server.asked.clear()
    assert [row.fetched for row in bring(WITHOUT_TORCH)] == [False] * 5
    assert server.asked == []
    assert [row.fetched for row in bring(["flexibert_glue"], force=True)] == [True]
    assert server.asked == [FLEXIBERT]
    assert files() == before


@pytest.mark.parametrize(
    "change", [lambda t: t[:-40], lambda t: t.replace("2d76e01", "0000000"), lambda _: ""]
)
def test_what_is_damaged_or_out_of_date_is_fetched_again(
    change: Callable[[str], str], server: Server, answers: dict[str, Answer]
) -> None:
    server.answers = answers
    (row,) = bring(["flexibert_glue"])
    good = Path(row.path).read_text()
    Path(row.path).write_text(change(good))
    assert [row.fetched for row in bring(["flexibert_glue"])] == [True]
    assert Path(row.path).read_text() == good


def without_length(content: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def cut(content: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """Half of what was promised."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content[: len(content) // 2])

    return answer


def cut_chunk(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"ff\r\nshort")


def redirected(to: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", to)
        handler.end_headers()

    return answer


def fails(words: str, name: str = "flexibert_glue") -> None:
    """The download of a benchmark after another one ends in an error, and leaves the cache as it was."""
    before = files()
    with pytest.raises(ValueError, match=words):
        bring([name], force=True)
    assert files() == before


@pytest.mark.parametrize("present", [False, True])
def test_a_file_that_does_not_come_as_published(
    present: bool, server: Server, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = answers[FLEXIBERT]
    if present:
        server.answers = answers
        bring(["flexibert_glue"])
    wrong: list[tuple[Answer | None, str]] = [
        (None, "404 Not Found"),
        (good[:-1] + b" ", f"{FLEXIBERT} has a wrong checksum"),
        (b"", "wrong checksum"),
        (cut(good), f"ended after {len(good) // 2} of {len(good)} bytes"),
        (without_length(good[:-9]), "wrong checksum"),
        (cut_chunk, "the connection broke"),
        (lambda handler: handler.wfile.write(b"what?"), "cannot download"),
        (lambda handler: handler.send_error(503), "503"),
        (
            redirected("file:///etc/hostname"),
            "redirects to 'file:///etc/hostname': the server answers 302 Found",
        ),
        (redirected("https://127.0.0.1:1/"), "redirects to 'https://127.0.0.1:1/': Connection refused"),
    ]
    for answer, words in wrong:
        server.answers = {} if answer is None else {FLEXIBERT: answer}
        fails(words)
    monkeypatch.setattr(download, "MAX_FILE", 1000)
    server.answers = {FLEXIBERT: good}
    fails("at most 1000 are read")
    server.answers = {FLEXIBERT: without_length(good)}
    fails("longer than 1000 bytes")


def test_no_network(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("ZEROLM_MIRROR", f"http://127.0.0.1:{free.getsockname()[1]}")
    fails("Connection refused")


def test_a_silent_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT", 0.1)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        monkeypatch.setenv("ZEROLM_MIRROR", f"http://127.0.0.1:{deaf.getsockname()[1]}")
        fails("silent|timed out")


def dripping(head: bytes) -> Callable[[BaseHTTPRequestHandler], None]:
    """A byte now and then, for ever, after ``head``: never silent, never done."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(head)
            while True:
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            handler.close_connection = True

    return answer


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\nX: ",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 9999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_a_server_that_never_ends(head: bytes, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "DEADLINE", 0.3)
    server.answers = {FLEXIBERT: dripping(head)}
    fails("cannot download .* longer than 0 seconds")


@pytest.mark.parametrize(
    "mirror", ["file:///etc", "ftp://host/", "host", "http://", "http:///etc", "http://["]
)
def test_mirrors_that_are_none(mirror: str, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLM_MIRROR", mirror)
    fails("ZEROLM_MIRROR must be")


def test_without_a_mirror_github_is_asked_by_https(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZEROLM_MIRROR", raising=False)
    for source in SOURCES.values():
        for url in source.urls:
            assert fetch.mirrored(url) == url
            assert url.startswith(("https://raw.githubusercontent.com/", "https://codeload.github.com/"))
            assert source.upstream.commit in url


def test_no_redirection_leaves_https() -> None:
    asked = Request("https://codeload.github.com/x")
    for to in ("http://codeload.github.com/x", "ftp://codeload.github.com/x"):
        careful = fetch.Careful()
        with pytest.raises(URLError, match="not https"):
            careful.redirect_request(asked, io.BytesIO(), 302, "Found", HTTPMessage(), to)
        assert careful.target == to
    followed = fetch.Careful().redirect_request(
        asked, io.BytesIO(), 302, "Found", HTTPMessage(), "https://a.github.com/x"
    )
    assert followed is not None


@pytest.mark.parametrize("wrong", ["flexibert_glue", "gpt2_lm1b"])
def test_one_failure_stores_none(wrong: str, server: Server, answers: dict[str, Answer]) -> None:
    server.answers = {path: answer for path, answer in answers.items() if path != path_of(wrong)}
    with pytest.raises(ValueError, match="404"):
        bring(WITHOUT_TORCH)
    assert files() == {}


def test_a_folder_that_cannot_be_written_keeps_what_it_has(
    server: Server, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = answers
    bring(["flexibert_glue", "gpt2_wt103"])
    before = files()

    def full(path: object, mode: int) -> None:
        if "gpt2" in str(path):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "chmod", full)
    with pytest.raises(OSError, match="No space"):
        bring(["flexibert_glue", "gpt2_wt103"], force=True)
    assert files() == before


def test_torch_is_asked_for_before_anything_is_fetched(
    server: Server, answers: dict[str, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = answers
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError, match=r"pit_vit need.*zerolm\[torch\]"):
        bring()
    assert server.asked == []
    assert len(bring(WITHOUT_TORCH)) == 5


def archives(members: list[Member]) -> list[tuple[bytes, str]]:
    """Archives that must not be read, with the words that say so."""
    configuration = f"{TOP}/config_0/j0/model_config.yaml"
    good = packed(members)
    link = tarfile.TarInfo(configuration)
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    wordy = tarfile.TarInfo(f"{TOP}/x")
    wordy.pax_headers = {"comment": "x" * 300_000}
    long = io.BytesIO()
    with tarfile.open(fileobj=long, mode="w:gz", format=tarfile.PAX_FORMAT) as made:
        made.addfile(wordy)
    first = next(i for i, (m, _) in enumerate(members) if m.name == configuration)
    changed = members[first][1].replace(b"d_model", b"d_modal")
    return [
        (b"", "wrong checksum|damaged"),
        (b"no archive", "damaged"),
        (good[:100_000], "damaged"),
        (good[:3_000] + b"x" * 100 + good[3_100:], "damaged|wrong checksum"),
        (gzip.compress(b"no archive" * 200), "damaged"),
        (packed([]), "damaged"),
        (
            packed([named(f"{TOP[:-1]}/config_0/j0/model_config.yaml", b"x: 1")]),
            f"no files below {SOURCES['gpt2_wt103'].pinned.path}",
        ),
        (packed([*members[:first], *members[first + 1 :]]), "wrong checksum"),
        (packed([*members[:first], named(configuration, changed), *members[first + 1 :]]), "wrong checksum"),
        (packed([*members, named(configuration, b"")]), "twice"),
        (packed([*members, named(f"{TOP}/config_999/j0/model_config.yaml", b"x: 1")]), "wrong checksum"),
        (packed([(link, b"")]), "no file of at most"),
        (packed([named(configuration, b"x" * 300_000)]), "no file of at most"),
        (
            packed([named(configuration.replace("/j0/", f"/j{n}/"), b"x" * 200_000) for n in range(90)]),
            "16777216",
        ),
        (long.getvalue(), "header"),
    ]


def test_archives_that_are_not_read(
    server: Server, answers: dict[str, Answer], data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = members_of_archai(data_folder / "upstream" / "lts_saved_logs.tar.gz")
    server.answers = dict(answers)
    bring(["gpt2_wt103"])
    for answer, words in archives(members):
        server.answers[ARCHIVE] = answer
        fails(f"{ARCHIVE}.*({words})", "gpt2_wt103")
    server.answers[ARCHIVE] = cut(answers[ARCHIVE])
    fails("ended after", "gpt2_wt103")
    server.answers[ARCHIVE] = answers[ARCHIVE]
    for name, most, words in [
        (archive, "MAX_MEMBERS", "more than 100 members"),
        (archive, "MAX_UNPACKED", "unpacked archive http.* is longer than 100"),
        (download, "MAX_ARCHIVE", "at most 100 are read"),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(name, most, 100)
            fails(words, "gpt2_wt103")


def test_paths_out_of_the_folder_are_passed_over(
    server: Server, answers: dict[str, Answer], data_folder: Path, tmp_path: Path
) -> None:
    members = members_of_archai(data_folder / "upstream" / "lts_saved_logs.tar.gz")
    strange = [
        named("../../harm"),
        named(f"{tmp_path}/harm"),
        named(f"{TOP}/../../harm.yaml"),
        named(f"{TOP}/config_0/../config_1/j0/model_config.yaml"),
        named(TOP, kind=tarfile.FIFOTYPE),
        named(f"{TOP}/disk", kind=tarfile.BLKTYPE),
    ]
    server.answers = {ARCHIVE: packed([*strange, *members])}
    assert bring(["gpt2_wt103"])[0].fetched
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_new_commit_is_another_address() -> None:
    moved = replace(SOURCES["pit_vit"], upstream=replace(ARCHAI, commit="0" * 40))
    assert moved.record() != SOURCES["pit_vit"].record()
    assert moved.urls != SOURCES["pit_vit"].urls


@pytest.mark.parametrize(
    ("settings", "folder"),
    [
        ({"ZEROLM_CACHE": "/a"}, "/a/benchmarks"),
        ({"ZEROLM_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a/benchmarks"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/zerolm/benchmarks"),
        ({"XDG_CACHE_HOME": "b"}, "/home/me/.cache/zerolm/benchmarks"),
        ({}, "/home/me/.cache/zerolm/benchmarks"),
    ],
)
def test_where_the_cache_is(settings: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZEROLM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": "/home/me"} | settings).items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder()) == folder


def test_progress_tells_bytes() -> None:
    told: list[tuple[str, int, int]] = []

    def progress(text: str, done: int = 0, of: int = 0, /) -> None:
        told.append((text, done, of))

    stream = io.BytesIO(b"x" * 200_000)
    assert len(fetch.Metered(stream, "it", 10**6, 200_000, progress).read_all()) == 200_000
    assert told[-1] == ("fetching it", 200_000, 200_000)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
