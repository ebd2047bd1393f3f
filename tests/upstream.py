"""A server on the loopback in GitHub's place, with the authors' files as they publish them."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from zerolm.groundtruth.download.archive import digest
from zerolm.groundtruth.sources import ARCHAI, GEMSTONE_LOSSES, GEMSTONE_RUNS, SOURCES

Member = tuple[tarfile.TarInfo, bytes]
Answer = bytes | Callable[[BaseHTTPRequestHandler], None]


def path_of(name: str) -> str:
    """Where on the server a benchmark's file, or its archive, is asked for."""
    return urlsplit(SOURCES[name].urls[0]).path


ARCHIVE = path_of("gpt2_wt103")
OLDER = [name for name, source in SOURCES.items() if not source.pinned.parts]
"""The benchmarks whose authors' files are at hand."""


@dataclass
class Server:
    """What is answered to whom asks for which path, and what was asked for."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.path)
            answer = state.answers.get(self.path)
            if answer is None:
                self.send_error(404)
            elif callable(answer):
                answer(self)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state = Server(f"http://127.0.0.1:{server.server_port}/")
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        server.shutdown()


def members_of_archai(repack: Path) -> list[Member]:
    """The saved logs where the archive of the commit has them, with something before and after."""
    top = f"archai-{ARCHAI.commit}"
    with tarfile.open(repack) as archive:
        logs = [(m, archive.extractfile(m).read() if m.isreg() else b"") for m in archive.getmembers()]
    for member, _ in logs:
        member.name = f"{top}/archai/nlp/nas/{member.name}"
    return [named(f"{top}/README.md", b"hello"), *logs, named(f"{top}/tests/x.py", b"pass")]


def named(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE) -> Member:
    member = tarfile.TarInfo(name)
    member.size, member.type = len(content), kind
    return member, content


def packed(members: Iterable[Member]) -> bytes:
    """A tar.gz as git makes it: ustar paths after a comment with the commit."""
    out = io.BytesIO()
    comment = {"comment": ARCHAI.commit}
    with tarfile.open(fileobj=out, mode="w:gz", compresslevel=1, format=tarfile.USTAR_FORMAT) as archive:
        archive.fileobj.write(tarfile.TarInfo.create_pax_global_header(comment))
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def published(data_folder: Path) -> dict[str, Answer]:
    """All that is asked for of the older benchmarks, answered as GitHub does."""
    folder = data_folder / "upstream"
    if not folder.is_dir():
        pytest.skip(f"{folder} with the authors' files is not there")
    files = {
        "flexibert_glue": "BERT_benchmark.json",
        "autoformer_vit": "gt_autoformer.pth",
        "pit_vit": "gt_pit.pth",
    }
    archive = packed(members_of_archai(folder / "lts_saved_logs.tar.gz"))
    return {path_of(name): (folder / file).read_bytes() for name, file in files.items()} | {ARCHIVE: archive}


def gemstones(decoders_folder: Path) -> dict[str, bytes]:
    """Files laid out as their authors' are, from the shared benchmark, with rows around those used."""
    runs, files = [], {}
    for entry in json.loads((decoders_folder / "gemstones.json").read_text())["architectures"]:
        name, results, sizes = entry["id"], entry["results"], entry["architecture"]
        run = {
            "run_name": f"PyGemma-{name}_pretrain",
            "params_active_precise": entry["parameters"]["total"],
            "width": sizes["hidden"],
            "depth": sizes["depth"],
        }
        for billions in (10, 50, 100, 200, 350):
            loss, tokens = results[f"train_loss_{billions}B"], billions * 10**9
            for place, value in ((tokens - 1, 9.0), (tokens, loss), (tokens + 10**9, 1.0)):
                runs.append({**run, "tokens": place, "step": place // 4_194_304, "final_loss": value})
        for corpus in ("fineweb", "fineweb_edu", "dclm"):
            losses = {"step_00047700": 9.0, "main": results[f"{corpus}_loss"]}
            files[f"{GEMSTONE_LOSSES}/{corpus}_losses/Gemstone-{name}.json"] = json.dumps(losses).encode()
    lines = (json.dumps(run) for run in reversed(runs))
    return {GEMSTONE_RUNS: "\n".join(lines).encode(), **files}


@contextmanager
def pinned(name: str, files: dict[str, bytes]) -> Iterator[dict[str, Answer]]:
    """Pin a benchmark to these files, and give the answers that bring them."""
    source = SOURCES[name]
    SOURCES[name] = replace(source, pinned=replace(source.pinned, sha256=digest("", files)))
    paths = (urlsplit(url).path for url in source.urls)
    try:
        yield dict(zip(paths, (files[part] for part in source.pinned.parts), strict=True))
    finally:
        SOURCES[name] = source
