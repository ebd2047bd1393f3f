"""Tokens that leave: ``python benchmarks/vocab.py --pages /usr/share/man --model pydec --work FOLDER``.

Writes ``vocab.md``. ``--pages`` holds manual pages in English and, in ``fr``, ``de`` and ``es``, in three
other languages, as the packages ``manpages``, ``manpages-fr`` and so on put them. What was measured is kept
in ``--work`` and not measured again. One thread.
"""

from __future__ import annotations

import argparse
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Final

from corpus import seen_text, unseen_text
from parts import Parts
from timing import one_thread
from vocab_curve import Curve
from vocab_curve import measure as measure_curve
from vocab_languages import BYTES_EACH, manual_pages
from vocab_languages import measure as measure_languages
from vocab_mix import measure as measure_mix
from vocab_page import page
from vocab_shapes import measure as measure_shapes

PLACE: Final = Path(__file__).with_suffix(".md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pages", type=Path, default=Path("/usr/share/man"), help="manual pages")
    parser.add_argument("--model", type=Path, required=True, help="the folder of pydec")
    parser.add_argument("--work", type=Path, required=True, help="a folder for what is measured")
    parser.add_argument("--minutes", type=float, default=40.0, help="of training the model of all languages")
    parser.add_argument("--only", choices=("curve", "languages", "mix", "shapes", "page"), action="append")
    chosen = parser.parse_args()
    only = chosen.only or ["curve", "languages", "mix", "shapes"]
    one_thread()
    chosen.work.mkdir(parents=True, exist_ok=True)
    parts = Parts(chosen.work / "vocab.jsonl")
    seen, unseen, english = (chosen.work / f"{name}.txt" for name in ("seen", "unseen", "english"))
    if not unseen.exists():
        seen.write_text(seen_text(), "utf-8")
        english.write_text(manual_pages(chosen.pages, "", 2 * BYTES_EACH), "utf-8")
        unseen.write_text(unseen_text(), "utf-8")
    tokenizers = chosen.work / "tok"
    if "curve" in only:
        measure_curve(parts, Curve(chosen.model, seen, unseen))
    if "languages" in only:
        measure_languages(parts, chosen.pages, seen, tokenizers)
    if "mix" in only:
        measure_mix(parts, chosen.pages, seen, chosen.work, 60.0 * chosen.minutes)
    if "shapes" in only:
        measure_shapes(parts, english, tokenizers, chosen.work / "shapes")
    written = StringIO()
    with redirect_stdout(written):
        page(parts.every())
    PLACE.write_text(written.getvalue().rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
