"""From a mixture and the number of experts to keep to a child that was compared with its parent."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import zerolm
from zerolm.architecture import Floats, Ints
from zerolm.carving.experts import expert_worth, neuron_worth
from zerolm.carving.experts.expert_choice import ChosenExperts, best_by_domains, best_by_pairs, best_experts
from zerolm.carving.experts.expert_count import (
    check_alone,
    check_joint,
    check_merge,
    checked,
    count_of,
    counts_of,
    largest_within,
    limits_of,
    most_within,
)
from zerolm.carving.experts.expert_merge import merged_experts
from zerolm.carving.experts.expert_repair import repaired_experts
from zerolm.carving.experts.expert_use import OF_NEURONS, expert_use
from zerolm.carving.experts.expert_width import ExpertWidth, to_hex
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.joint_plan import least_lost
from zerolm.carving.experts.masked_parent import compare_with_masked
from zerolm.carving.experts.neuron_worth import best_neurons, lost
from zerolm.carving.experts.ream import Groups
from zerolm.carving.experts.routing import Routing
from zerolm.carving.export.read_again import ReadAgain
from zerolm.carving.export.verify import Verified, fits
from zerolm.carving.export.write_child import complete
from zerolm.carving.kept_units import Cut, dimensions
from zerolm.carving.planning.part_costs import stored_bits
from zerolm.carving.planning.sizes import costs_of
from zerolm.carving.recipe import Recipe, document, versions_of, with_experts
from zerolm.carving.request import AUTO, NO_MERGE, WORST, Destination, Methods, SizeRequest
from zerolm.carving.result import Carved, CarvingMethod, widths
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, ledger_of, write_shards
from zerolm.checkpoints.identity import check_unchanged, fingerprint
from zerolm.checkpoints.ledger import Ledger
from zerolm.checkpoints.origin import origin_of
from zerolm.checkpoints.packed import PackedTensor
from zerolm.costs import CostModel
from zerolm.families.config import CoreSizes
from zerolm.io.cache import ArrayCache, Arrays
from zerolm.io.files import write_json
from zerolm.io.folders import REPORT, new_folder
from zerolm.networks.opener import mapped_model
from zerolm.progress import Progress
from zerolm.settings import shown
from zerolm.settings.compute import ComputeRequest
from zerolm.settings.domains import domains_of

FORMAT: Final = "hf"
BY_BYTES: Final = "bytes"
COPIED: Final = "the parent is stored quantised, so that experts are copied as they are and none is repaired"
CHOICE_FORMAT: Final = 1
"""One more where the choice by pairs comes about in another way."""
MERGE_FORMAT: Final = 1
"""One more where experts are merged in another way."""


@dataclass(frozen=True, eq=False)
class ExpertCarving:
    """A mixture and what is to be done with it; ``recipe`` is that of a child that is built again."""

    name: str
    checkpoint: Checkpoint
    size: SizeRequest
    methods: Methods
    destination: Destination
    costs: CostModel
    compute: ComputeRequest
    progress: Progress
    recipe: Recipe | None = None

    @property
    def repair(self) -> str:
        """How the child is repaired: experts that are stored quantised are copied as they are."""
        return "none" if self.checkpoint.packed else self.methods.repair

    @property
    def merge(self) -> str:
        """How experts that leave are merged into those that stay."""
        return self.size.experts.merge if self.recipe is None else self.recipe.merge

    @cached_property
    def routing(self) -> Routing:
        return Routing.of(self.checkpoint)

    @cached_property
    def ledger(self) -> Ledger:
        """The sums of all weights, which are finite."""
        return ledger_of(self.checkpoint, progress=self.progress)

    @cached_property
    def session(self) -> Session:
        return Session(self.checkpoint, self.methods, self.progress, self.compute)

    @cached_property
    def use(self) -> dict[int, Arrays]:
        """The sums of the pass over all texts by layer; empty where no tokens are read."""
        return {
            layer: {
                name: sum((use[layer][name] for use in self.uses.values()), np.zeros(())) for name in sums
            }
            for layer, sums in next(iter(self.uses.values()), {}).items()
        }

    @cached_property
    def uses(self) -> dict[str, dict[int, Arrays]]:
        """The sums of the pass over each text, by its domain, by layer; empty where no tokens are read."""
        text = self.methods.text
        if text is None or not expert_worth.needs_tokens(self.methods.criterion):
            return {}
        several = {name: f"{name}={one}" for name, one in domains_of(text).items()}
        return {name: self._use(self._session(one)) for name, one in several.items()} or {
            "": self._use(self.session)
        }

    def _session(self, text: str) -> Session:
        """Return a session on one of several texts."""
        return Session(self.checkpoint, replace(self.methods, text=text), self.progress, self.compute)

    def _use(self, session: Session) -> dict[int, Arrays]:
        """Return the sums of the pass over the text of a session, by layer."""
        if session.tokens.ids.shape[1] < 2:
            raise ValueError("the text has one token a sequence; two at least are needed")
        cache = session.cache("experts")
        return expert_use(
            self.checkpoint,
            session.model,
            session.tokens,
            neurons=self.size.experts.ffn is not None,
            cache=cache,
            progress=self.progress,
        )

    def carved(self) -> Carved:
        """Return the outcome, with the child on the disk where one is wanted."""
        self._check()
        _ = self.ledger
        fewer, groups = self._merged(self._fewer())
        fewer, left = self._repaired(fewer)
        outcome = self._outcome(fewer, left, groups)
        folder = self.destination.folder
        return outcome if folder is None else self._written(outcome, fewer, folder)

    def _check(self) -> None:
        """Refuse before any work what cannot be."""
        methods, family = self.methods, self.checkpoint.family
        check_alone(self.size, methods, rebuilt=self.recipe is not None)
        if self.destination.form not in (None, FORMAT):
            raise ValueError(
                f"experts are taken out of a folder into a folder, not as {shown(self.destination.form)}: "
                "give --format hf, and convert the child"
            )
        self._check_domains()
        if methods.repair != "none" and methods.text is None:
            raise ValueError(f"repair {methods.repair} needs tokens: give --text FILE, or --repair none")
        if self.merge != NO_MERGE:
            self._check_merge()
        if self.recipe is None and expert_worth.needs_tokens(methods.criterion) and methods.text is None:
            raise ValueError(
                f"criterion {methods.criterion} needs tokens: give --text FILE, or --criterion aimer, which "
                "needs none"
            )
        if (
            family.task == "next"
            and self.checkpoint.layout.name("head") is None
            and not self.checkpoint.layout.tied
        ):
            raise ValueError(f"a {family.name} without a language-model head cannot be compared")
        embedding = self.checkpoint.layout.name("embedding")
        if embedding is not None and isinstance(self.checkpoint.tensors[embedding], PackedTensor):
            raise ValueError(
                f"tensor {embedding!r} is stored quantised, and rows of an embedding are not read so"
            )
        _ = self.routing
        if self.recipe is None:
            check_joint(self.size, methods)
            _ = self.width
            _ = self.plan if not self._is_joint else None

    def _check_merge(self) -> None:
        """Refuse to merge experts that are copied as they are, or by no text."""
        if self.checkpoint.packed:
            raise ValueError(
                "the parent is stored quantised, so that experts are copied as they are: give no --merge"
            )
        check_merge(self.methods.text)

    def _check_domains(self) -> None:
        """Refuse a choice by the worst of several domains, where there are none, or nothing tells it."""
        if self.size.experts.domains != WORST:
            return
        name = self.methods.criterion
        if len(domains_of(self.methods.text)) < 2 or not expert_worth.needs_tokens(name):
            raise ValueError("--domains worst needs texts of several domains: --text code=FILE,chat=FILE")
        if expert_worth.is_of_pairs(name):
            raise ValueError(
                f"--domains worst is by the worth of single experts, not by pairs as {name}: give reap"
            )

    @cached_property
    def width(self) -> ExpertWidth | None:
        """The neurons that experts may keep; None where all of them stay."""
        is_asked = self.size.experts.ffn is not None if self.recipe is None else self.recipe.has_neurons
        return ExpertWidth.of(self.checkpoint, self.size) if is_asked else None

    @property
    def _is_joint(self) -> bool:
        return self.size.experts.keep == self.size.experts.ffn == AUTO

    @cached_property
    def plan(self) -> tuple[int, int | None]:
        """How many experts a layer keeps, and how many neurons each (None: all): as asked, or within budgets."""
        experts, width = self.size.experts, self.width
        whole = costs_of(self.checkpoint, self.costs)
        if width is None:
            return count_of(self.size, self.routing, whole, lambda count: self._costs(count, None)), None
        counts = counts_of(self.size, self.routing)
        if experts.ffn != AUTO:
            neurons, _ = width.size(str(experts.ffn))
            count = count_of(self.size, self.routing, whole, lambda count: self._costs(count, neurons))
            return count, neurons
        limits = limits_of(self.size, whole)
        if experts.keep != AUTO:
            units = f"neurons of each of {counts[0]} experts a layer"
            most = most_within(limits, width.possible, partial(self._costs, counts[0]), units)
            return counts[0], most
        most_within(
            limits, counts, lambda count: self._costs(count, width.possible[0])
        )  # refuses what is none
        planned = least_lost(
            counts,
            lambda count: largest_within(limits, width.possible, partial(self._costs, count)),
            lambda count: sum(each.loss or 0.0 for each in self._chosen(count).values()),
            self._lost_by_neurons,
        )
        return planned.experts, planned.neurons

    def _lost_by_neurons(self, count: int, neurons: int) -> float:
        """Return the worths of neurons that leave of the experts that stay, if so many of both do."""
        return sum(
            float(lost(self._neuron_worth(layer)[each.kept])[:, neurons].sum())
            for layer, each in self._chosen(count).items()
        )

    def _costs(self, count: int, neurons: int | None) -> dict[str, int]:
        """Return the costs of a child with so many experts a layer, and neurons of each."""
        layers = expert_layers(self.checkpoint)
        first = {layer: np.arange(count) for layer in layers}
        narrow = (
            {} if neurons is None else {layer: np.tile(np.arange(neurons), (count, 1)) for layer in layers}
        )
        return costs_of(FewerExperts(self.checkpoint, first, neurons=narrow).shaped(), self.costs)

    def _fewer(self) -> FewerExperts:
        """Return the child with the best experts of each layer, or with those of the recipe."""
        if self.recipe is not None and self.recipe.experts is not None:
            kept = checked(self.recipe.experts, expert_layers(self.checkpoint), self.routing)
            if self.width is None:
                return FewerExperts(self.checkpoint, kept)
            return FewerExperts(
                self.checkpoint, kept, neurons=self.width.checked(self.recipe.neurons(self.width.whole))
            )
        return FewerExperts(
            self.checkpoint,
            {layer: each.kept for layer, each in self.chosen.items()},
            neurons=self._neurons(),
        )

    def _neurons(self) -> dict[int, Ints]:
        """Return the best neurons of each expert that stays, by layer; empty where all stay."""
        count = self.plan[1]
        if self.width is None or count in (None, self.width.whole):
            return {}
        return {
            layer: best_neurons(self._neuron_worth(layer)[each.kept], count or 0)
            for layer, each in self.chosen.items()
        }

    @cached_property
    def chosen(self) -> dict[int, ChosenExperts]:
        """The experts of each layer, chosen by the criterion; empty where a recipe names them."""
        return {} if self.recipe is not None else self._chosen(self.plan[0])

    def _chosen(self, count: int) -> dict[int, ChosenExperts]:
        """Return so many experts of each layer, chosen by the criterion."""
        groups, depth = self.routing.groups, self.checkpoint.layout.depth
        chosen = dict[int, ChosenExperts]()
        for layer in expert_layers(self.checkpoint):
            if self.size.experts.domains == WORST:
                worths = np.array([self._by_sums(use[layer]) for use in self.uses.values()])
                chosen[layer] = best_by_domains(worths, count, groups)
            elif expert_worth.is_of_pairs(self.methods.criterion):
                self.progress("choosing experts by their pairs", layer, depth)
                chosen[layer] = _by_pairs(self._worth(layer), count, groups)
            else:
                chosen[layer] = ChosenExperts(best_experts(self._worth(layer), count, groups))
        return chosen

    def _neuron_worth(self, layer: int) -> Floats:
        """Return the worth (e, m) of the neurons of the experts of a layer."""
        name = self.methods.criterion
        if expert_worth.needs_tokens(name):
            return self.use[layer][OF_NEURONS]
        if name == expert_worth.RANDOM:
            sizes = self.checkpoint.layout.sizes
            return neuron_worth.drawn(self.methods.seed, layer, sizes[AXIS], sizes[NEURONS])
        self.progress("weighing neurons by their weights", layer, self.checkpoint.layout.depth)
        return neuron_worth.by_weights(self.checkpoint, layer, self.ledger)

    def _worth(self, layer: int) -> Floats:
        name = self.methods.criterion
        if expert_worth.needs_tokens(name):
            return self._by_sums(self.use[layer])
        if name == expert_worth.RANDOM:
            return expert_worth.drawn(self.methods.seed, layer, self.routing.experts)
        self.progress("weighing experts by their weights", layer, self.checkpoint.layout.depth)
        return expert_worth.by_weights(self.checkpoint, layer, self.ledger)

    def _by_sums(self, sums: Arrays) -> Floats:
        """Return the worth of experts, or what their pairs lose, by the sums of a layer."""
        by_sums = expert_worth.EXPERT_CRITERIA[self.methods.criterion]
        assert by_sums is not None
        return by_sums(sums)

    def _stays(self, layer: int, kept: Ints) -> dict[str, float]:
        """Return by domain what share of the worth of all experts stays; by pairs what leaves is not lost."""
        if self.recipe is not None or len(domains_of(self.methods.text)) < 2:
            return {}
        shares = {}
        for name, use in self.uses.items():
            worth = self._by_sums(use[layer])
            gone = np.setdiff1d(np.arange(len(worth)), kept)
            lost = worth[np.ix_(gone, gone)] if worth.ndim > 1 else worth[gone]
            total = float(worth.sum())
            shares[name] = 1.0 - float(lost.sum()) / total if total else 1.0
        return shares

    def _merged(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, Groups]]:
        """Return the child that is written, merged where that is wanted, and what went into what."""
        if self.merge == NO_MERGE or self.destination.folder is None:
            return fewer, {}
        session = self._of_recipe()
        cache = session.cache("merged experts", _kept(fewer), MERGE_FORMAT)
        changed, groups = merged_experts(
            fewer, session.model, session.tokens, cache=cache, progress=self.progress
        )
        return replace(fewer, changed=changed), groups

    def _of_recipe(self) -> Session:
        """Return the session on the text, which is that of the recipe where there is one."""
        if self.recipe is not None:
            self.recipe.check_text(self.session.tokens.text)
        return self.session

    def _repaired(self, fewer: FewerExperts) -> tuple[FewerExperts, dict[int, float]]:
        """Return the child that is written, repaired where that is wanted, and the shares of error left."""
        if self.repair == "none" or self.destination.folder is None:
            return fewer, {}
        session = self._of_recipe()
        merging = [] if self.merge == NO_MERGE else [self.merge, MERGE_FORMAT]
        cache = session.cache("repaired experts", _kept(fewer), *merging, *_in_hex(fewer).items())
        changed, left = repaired_experts(
            fewer, session.model, session.tokens, cache=cache, progress=self.progress
        )
        return replace(fewer, changed=changed), left

    def _outcome(
        self, fewer: FewerExperts, left: Mapping[int, float], groups: Mapping[int, Groups]
    ) -> Carved:
        checkpoint, methods = self.checkpoint, self.methods
        cut = Cut.whole(dimensions(checkpoint))
        costs = {
            "parent": costs_of(checkpoint, self.costs),
            "child": costs_of(fewer.shaped(), self.costs),
        }
        return Carved(
            self.name,
            checkpoint.family.name,
            CarvingMethod(methods.criterion, self.repair, "weights", self.size.layer_shape, FORMAT, None),
            costs,
            stored_bits(checkpoint, self.costs),
            None if self.recipe else not any(each.gap for each in self.chosen.values()),
            {},
            widths(cut),
            None,
            {part.name: getattr(cut.parent, part.name) for part in fields(CoreSizes)},
            note="; ".join(filter(None, ["" if self.repair == methods.repair else COPIED, self._rounding()])),
            experts=self._described(fewer, left, groups),
            kept=cut,
        )

    def _rounding(self) -> str:
        """Return what is to be said of a share of neurons that was rounded; empty where none was."""
        text = self.size.experts.ffn
        return "" if self.width is None or text in (None, AUTO) else self.width.size(str(text))[1]

    @property
    def gaps(self) -> dict[int, float]:
        """The gap of the choice of each layer, where pairs told it."""
        gaps = {layer: each.gap for layer, each in self.chosen.items()}
        return {layer: gap for layer, gap in gaps.items() if gap is not None}

    def _described(
        self, fewer: FewerExperts, left: Mapping[int, float], groups: Mapping[int, Groups]
    ) -> dict[str, Any]:
        """Return what is to be said of the experts as plain JSON."""
        use, routing, neurons = self.use if self.recipe is None else {}, self.routing, _in_hex(fewer)
        rows = [
            {
                "layer": layer,
                "kept": kept.tolist(),
                "tokens": _share(use.get(layer), "count", kept),
                "gates": _share(use.get(layer), "gate", kept),
                "loss": self.chosen[layer].loss if self.chosen else None,
                "gap": self.chosen[layer].gap if self.chosen else None,
                "left": left.get(layer),
                "domains": self._stays(layer, kept),
                "merged": {str(centre): members for centre, members in groups.get(layer, {}).items()},
                **({"neurons": self._narrow(fewer, layer, neurons[layer])} if neurons else {}),
            }
            for layer, kept in fewer.by_layer.items()
        ]
        return {
            "parent": routing.experts,
            "child": fewer.count,
            "active": routing.active,
            "groups": routing.groups,
            "merge": self.merge,
            **({"ffn": {"parent": self.width.whole, "child": fewer.width}} if self.width else {}),
            "layers": rows,
        }

    def _narrow(self, fewer: FewerExperts, layer: int, kept: list[str]) -> dict[str, Any]:
        """Return which neurons of a layer's experts stay, and what tokens tell that the others lose."""
        if not self.use_is_of_text:
            return {"kept": kept, "loss": None}
        worth = self._neuron_worth(layer)[fewer.by_layer[layer]]
        return {"kept": kept, "loss": float(lost(worth)[:, fewer.width].sum())}

    def _written(self, carved: Carved, fewer: FewerExperts, out: Path) -> Carved:
        """Write the child into a new folder, compared with its parent before the folder gets its name."""
        checkpoint, finish = self.checkpoint, self.destination.finish
        versions = versions_of("torch", "transformers")
        parent = origin_of(checkpoint.root), fingerprint(checkpoint, progress=self.progress)
        calibration = self.session.calibration if self.use_is_of_text or fewer.changed else None
        if self.recipe is not None:
            calibration = None if self.recipe.calibration is None else dict(self.recipe.calibration)
        plain = document(carved, *parent, calibration, {}, versions)
        recipe = with_experts(plain, fewer.by_layer, self.gaps, self.merge, _in_hex(fewer))
        with new_folder(out, self.destination.force) as folder:
            place = folder / checkpoint.folder.relative_to(checkpoint.root)
            place.mkdir(parents=True, exist_ok=True)
            outgoing, config = fewer.outgoing(), fewer.configuration()
            with ReadAgain() as again:
                write_shards(place, outgoing, progress=self.progress, written=again.written)
                self.progress("comparing the child with its parent")
                digests = again.digests()
            write_json(place / "config.json", config)
            kind, more = str(config["model_type"]), REPORT if finish else ()
            sha256 = complete(checkpoint, recipe, folder, kind, config, more, digests)
            note = self.recipe.difference(sha256, versions) if self.recipe else ""
            proof = self._verified(Checkpoint.open(folder, packed=True), fewer)
            notes = "; ".join(filter(None, [carved.note, note]))
            carved = replace(carved, note=notes, verified=proof.to_json())
            if finish:
                finish(folder, carved)
            for shard in checkpoint.shards:
                check_unchanged(shard)  # else the child is of two parents, and its recipe names one
        return carved

    @property
    def use_is_of_text(self) -> bool:
        """Return whether tokens told which experts stay."""
        return self.recipe is None and expert_worth.needs_tokens(self.methods.criterion)

    def _verified(self, child: Checkpoint, fewer: FewerExperts) -> Verified:
        """Return the proof: all bytes are the parent's, and so are outputs, where memory holds its layers."""
        if fits(fewer.parent, self.session.compute.limit):
            return compare_with_masked(child, fewer)
        mapped_model(child)  # the stock class has a place for each weight, and no other
        return Verified(0.0, 0.0, BY_BYTES)


def _kept(fewer: FewerExperts) -> list[tuple[int, list[int]]]:
    """Return the experts that stay by layer, as a key of the cache."""
    return [(layer, kept.tolist()) for layer, kept in fewer.by_layer.items()]


def _in_hex(fewer: FewerExperts) -> dict[int, list[str]]:
    """Return the neurons that stay of each expert by layer, as hexadecimal digits; empty where all do."""
    whole = fewer.parent.layout.sizes.get(NEURONS, 0)
    return {layer: [to_hex(kept, whole) for kept in rows] for layer, rows in fewer.neurons.items()}


def _by_pairs(pairs: Floats, count: int, groups: int) -> ChosenExperts:
    """Return the choice by pairs (e, e), from the cache where it was made before."""
    key = hashlib.sha256(np.ascontiguousarray(pairs).tobytes()).hexdigest()
    cache = ArrayCache.of("experts by pairs", CHOICE_FORMAT, zerolm.__version__, key, count, groups)
    row = cache.get("chosen")
    if row is None:
        chosen = best_by_pairs(pairs, count, groups)
        row = {"kept": chosen.kept, "loss": np.array(chosen.loss), "gap": np.array(chosen.gap)}
        cache.put("chosen", row)
    return ChosenExperts(row["kept"], float(row["loss"]), float(row["gap"]))


def _share(sums: Arrays | None, name: str, kept: Ints) -> float | None:
    """Return the share that kept experts have of a sum; None without one."""
    total = 0.0 if sums is None else float(sums[name].sum())
    return float(sums[name][kept].sum()) / total if sums is not None and total else None
