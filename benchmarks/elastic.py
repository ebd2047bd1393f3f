"""Elastic supernets: ``python benchmarks/elastic.py WORK`` measures in parts and writes ``elastic.md``.

Every part is a line of ``elastic/KIND.jsonl`` once it is measured, so a run that was stopped goes on, with
another WORK too (its supernets are then trained again where they are needed). ``--seeds 0`` measures one
seed, ``--stored`` writes the page of what is there. Encoders are trained on docstrings of the standard
library, decoders on its code. Modules that ``corpus.py`` holds out are left out, and judge every network; a
search of a supernet looks at what that training held out. One process, one thread.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from elastic_page import write_page
from elastic_runs import KINDS, SEEDS, Place, agreement, comparisons, costs, fewer_heads, longer, sharing
from timing import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("work", type=Path, help="folder of texts and supernets")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--stored", action="store_true", help="write the page of what is measured already")
    given = parser.parse_args()
    one_thread()
    work = given.work.resolve()
    for kind in () if given.stored else given.kinds:
        place = Place(work, kind)
        costs(place)
        for seed in given.seeds:
            place.parts.measured(f"comparisons-{seed}", partial(comparisons, place, seed))
            place.parts.measured(f"heads-{seed}", partial(fewer_heads, place, seed))
            place.parts.measured(f"longer-{seed}", partial(longer, place, seed))
            place.parts.measured(f"sharing-{seed}", partial(sharing, place, seed))
            agreement(place, seed)
    write_page([Place(work, kind) for kind in KINDS])


if __name__ == "__main__":
    main()
