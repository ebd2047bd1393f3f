"""The kept experts of a mixture of experts, and the kept neurons of each: how many, and which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts import expert_scores
from zerolm.carving.experts.expert_count import (
    ChosenExperts,
    ExpertWidth,
    best_by_domains,
    best_by_pairs,
    best_experts,
    best_of_rows,
    check_experts,
    check_request,
    counts_of,
    largest_within,
    least_lost,
    limits_of,
    most_within,
    tried_of,
)
from zerolm.carving.experts.expert_use import OF_NEURONS, expert_use
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS
from zerolm.carving.experts.gguf_mixture import GgufMixture
from zerolm.carving.experts.stock_mixture import StockMixture
from zerolm.carving.recipe_fields import ExpertsAndNeurons, to_hex
from zerolm.carving.request import Methods
from zerolm.carving.result import ChildExperts, ChildWidth, ExpertRow, NeuronRow
from zerolm.carving.session import Session
from zerolm.io.cache import Arrays
from zerolm.planning.size_request import AUTO, WORST, SizeRequest
from zerolm.progress import Progress
from zerolm.settings.compute import ComputeRequest
from zerolm.settings.domains import domains_of


@dataclass(frozen=True, eq=False)
class ExpertSelection:
    """The part of a mixture of experts that a request keeps, or a recipe: planned and chosen lazily.

    ``of_recipe`` are the experts and neurons of a child that is built again; nothing is chosen then.
    """

    mixture: StockMixture | GgufMixture
    size: SizeRequest
    methods: Methods
    compute: ComputeRequest
    progress: Progress
    of_recipe: ExpertsAndNeurons | None = None

    @cached_property
    def session(self) -> Session:
        return self._session(self.methods.text)

    def _session(self, text: str | None) -> Session:
        """Return a session on one of the texts, in float32: inputs of experts are multiplied separately."""
        methods, running = replace(self.methods, text=text), replace(self.compute, dtype="float32")
        return Session(self.mixture.checkpoint, methods, self.progress, running)

    @property
    def are_chosen_by_tokens(self) -> bool:
        return self.of_recipe is None and expert_scores.needs_tokens(self.methods.criterion)

    @cached_property
    def use(self) -> dict[int, Arrays]:
        """The sums of the pass over all texts by layer; empty where no tokens are used.

        Those of neurons may be there of one text alone, from the cache of an earlier carving.
        """
        uses = list(self.uses.values())
        return {
            layer: {
                name: sum((use[layer][name] for use in uses), np.zeros(()))
                for name in sums
                if all(name in use[layer] for use in uses)
            }
            for layer, sums in (uses[0] if uses else {}).items()
        }

    @cached_property
    def uses(self) -> dict[str, dict[int, Arrays]]:
        """The sums of the pass over each text, by domain and layer; empty where no tokens are used."""
        if not self.are_chosen_by_tokens:
            return {}
        several = {name: f"{name}={one}" for name, one in domains_of(self.methods.text).items()}
        return {name: self._use(self._session(one)) for name, one in several.items()} or {
            "": self._use(self.session)
        }

    def _use(self, session: Session) -> dict[int, Arrays]:
        """Return the sums of the pass over the text of a session, by layer."""
        if session.tokens.ids.shape[1] < 2:
            raise ValueError("the text has one token a sequence; two at least are needed")
        return expert_use(
            session.checkpoint,
            session.model,
            session.divided.fitted,
            neurons=self.size.experts.ffn is not None,
            cache=session.cache("experts"),
            progress=self.progress,
        )

    @cached_property
    def width(self) -> ExpertWidth | None:
        """The possible numbers of neurons of an expert; None where all are kept."""
        return None if self.size.experts.ffn is None else ExpertWidth.of(self.mixture.checkpoint, self.size)

    @cached_property
    def _counts(self) -> list[int]:
        """The possible numbers of experts of a layer, ascending."""
        return counts_of(self.size, self.mixture.routing)

    def check(self, *, alone: bool) -> None:
        """Raise ``ValueError`` for an impossible request before any work; ``alone``: nothing else is removed.

        A recipe was checked when it was read, but for what depends on its parent.
        """
        _ = self.mixture.routing
        if self.of_recipe is None:
            check_request(self.size, self.methods, alone=alone)
            _ = self.least
        else:
            experts, neurons = self.of_recipe
            check_experts(experts, self.mixture.layers, self.mixture.routing)
            if neurons:
                ExpertWidth.of(self.mixture.checkpoint, self.size).check(neurons)

    @property
    def least(self) -> tuple[int, int | None]:
        """The planned numbers of experts and neurons, or the least possible where a pass plans both."""
        width = self.width
        if width is None or not self.size.experts.keep == self.size.experts.ffn == AUTO:
            return self.plan
        least = width.possible[0]
        most_within(limits_of(self.size), self._counts, partial(self.mixture.costs, neurons=least))
        return self._counts[0], least

    @cached_property
    def plan(self) -> tuple[int, int | None]:
        """The kept experts of a layer, and neurons of each (None: all): as requested, or within budgets."""
        experts, width, counts, limits = self.size.experts, self.width, self._counts, limits_of(self.size)
        number = None if experts.keep == AUTO else counts[0]
        if width is None or experts.ffn != AUTO:
            neurons = None if width is None else width.size(str(experts.ffn))[0]
            number = number or most_within(limits, counts, partial(self.mixture.costs, neurons=neurons))
            return number, neurons
        if number is not None:
            units = f"neurons of each of {number} experts a layer"
            return number, most_within(limits, width.possible, partial(self.mixture.costs, number), units)
        planned = least_lost(
            tried_of(counts),
            lambda count: largest_within(limits, width.possible, partial(self.mixture.costs, count)),
            lambda count: sum(each.loss or 0.0 for each in self.chosen_of(count).values()),
            lambda count, neurons: sum(
                float(self._neuron_losses[layer][each.kept, neurons].sum())
                for layer, each in self.chosen_of(count).items()
            ),
        )
        return planned.experts, planned.neurons

    @cached_property
    def _neuron_losses(self) -> dict[int, Floats]:
        """The predicted loss of each expert of a layer by number of kept neurons (e, m + 1), from tokens."""
        return {layer: expert_scores.losses_of_neurons(sums[OF_NEURONS]) for layer, sums in self.use.items()}

    @cached_property
    def neurons(self) -> Mapping[int, Ints]:
        """The kept neurons (e, n) of each kept expert, by layer; empty where all are kept."""
        if self.of_recipe is not None:
            return self.of_recipe[1]
        count = self.plan[1]
        if self.width is None or count in (None, self.width.whole):
            return {}
        return {
            layer: best_of_rows(self._neuron_scores(layer)[each.kept], count or 0)
            for layer, each in self.chosen.items()
        }

    @cached_property
    def in_hex(self) -> dict[int, list[str]]:
        """The kept neurons of each expert as hexadecimal digits, by layer; empty where all are kept."""
        whole = self.mixture.sizes.get(NEURONS, 0)
        return {layer: [to_hex(kept, whole) for kept in rows] for layer, rows in self.neurons.items()}

    @property
    def kept(self) -> dict[int, Ints]:
        """The kept experts by layer, ascending."""
        return {layer: each.kept for layer, each in self.chosen.items()}

    @cached_property
    def chosen(self) -> dict[int, ChosenExperts]:
        """The experts of each layer: the recipe's, or those chosen by the criterion."""
        if self.of_recipe is not None:
            return {layer: ChosenExperts(kept) for layer, kept in self.of_recipe[0].items()}
        return self.chosen_of(self.plan[0])

    @property
    def is_optimal(self) -> bool | None:
        """Whether it is proven that no choice is better; None where a recipe names the experts."""
        return None if self.of_recipe else all(each.is_proven for each in self.chosen.values())

    @cached_property
    def _choices(self) -> dict[int, dict[int, ChosenExperts]]:
        """The choices made so far, by the number of kept experts."""
        return {}

    def chosen_of(self, count: int) -> dict[int, ChosenExperts]:
        """Return ``count`` experts of each layer, chosen by the criterion."""
        if count in self._choices:
            return self._choices[count]
        groups, chosen = self.mixture.routing.groups, self._choices.setdefault(count, {})
        for layer in self.mixture.layers:
            if self.size.experts.domains == WORST:
                by_domain = np.array([self._by_sums(use[layer]) for use in self.uses.values()])
                chosen[layer] = best_by_domains(by_domain, count, groups)
            elif expert_scores.is_of_pairs(self.methods.criterion):
                self._tell("choosing experts by their pairs", layer)
                chosen[layer] = best_by_pairs(self._scores(layer), count, groups)
            else:
                chosen[layer] = ChosenExperts(best_experts(self._scores(layer), count, groups))
        return chosen

    def _tell(self, words: str, layer: int) -> None:
        self.progress(words, layer, self.mixture.layers[-1] + 1)

    def _neuron_scores(self, layer: int) -> Floats:
        """Return the scores (e, m) of the neurons of the experts of a layer."""
        if self.are_chosen_by_tokens:
            return self.use[layer][OF_NEURONS]
        mixture = self.mixture
        assert isinstance(mixture, StockMixture)
        if self.methods.criterion == expert_scores.RANDOM:
            return expert_scores.drawn_neurons(
                self.methods.seed, layer, mixture.sizes[AXIS], mixture.sizes[NEURONS]
            )
        self._tell("scoring neurons by their weights", layer)
        return expert_scores.neurons_by_weights(mixture.checkpoint, layer, mixture.ledger)

    def _scores(self, layer: int) -> Floats:
        if self.are_chosen_by_tokens:
            return self._by_sums(self.use[layer])
        if self.methods.criterion == expert_scores.RANDOM:
            return expert_scores.drawn(self.methods.seed, layer, self.mixture.routing.experts)
        self._tell("scoring experts by their weights", layer)
        return self.mixture.by_weights(layer)

    def _by_sums(self, sums: Arrays) -> Floats:
        """Return the scores of experts, or the losses of their pairs, from the sums of a layer."""
        by_sums = expert_scores.EXPERT_CRITERIA[self.methods.criterion]
        assert by_sums is not None
        return by_sums(sums)

    def described(self, left: Mapping[int, float]) -> ChildExperts:
        """Return the description of the kept experts; ``left`` are shares of error after repair by layer."""
        routing, rows = self.mixture.routing, list[ExpertRow]()
        for layer, chosen in self.chosen.items():
            tokens, gates = (self._share(layer, name, chosen.kept) for name in ("count", "gate"))
            row = ExpertRow(layer, chosen.kept.tolist(), tokens, gates, chosen.loss, chosen.gap)
            narrow = NeuronRow(self.in_hex[layer], self._neuron_loss(layer)) if self.neurons else None
            domains = self._kept_shares(layer, chosen.kept)
            rows.append(replace(row, left=left.get(layer), domains=domains, neurons=narrow))
        whole = self.mixture.sizes.get(NEURONS, 0)
        width = next((each.shape[1] for each in self.neurons.values()), whole)
        ffn = ChildWidth(whole, width) if self.neurons or self.width else None
        counts = routing.experts, len(rows[0].kept), routing.active, routing.groups
        return ChildExperts(self.methods.criterion, *counts, ffn, rows)

    def _neuron_loss(self, layer: int) -> float | None:
        """Return the predicted loss of the removed neurons of kept experts; None without tokens."""
        if not self.are_chosen_by_tokens or self.width is None:
            return None
        neurons = self.plan[1] or self.width.whole
        return float(self._neuron_losses[layer][self.chosen[layer].kept, neurons].sum())

    def _kept_shares(self, layer: int, kept: Ints) -> dict[str, float]:
        """Return by domain the kept share of all experts' scores; by pairs 1 minus the lost share."""
        if len(domains_of(self.methods.text)) < 2:
            return {}
        shares = {}
        for name, use in self.uses.items():
            scores = self._by_sums(use[layer])
            removed = np.setdiff1d(np.arange(len(scores)), kept)
            removed_scores = scores[np.ix_(removed, removed)] if scores.ndim > 1 else scores[removed]
            total = float(scores.sum())
            shares[name] = 1.0 - float(removed_scores.sum()) / total if total else 1.0
        return shares

    def _share(self, layer: int, name: str, kept: Ints) -> float | None:
        """Return the share of the kept experts in a sum; None without one."""
        sums = self.use.get(layer)
        total = 0.0 if sums is None else float(sums[name].sum())
        return float(sums[name][kept].sum()) / total if sums is not None and total else None

    def rounding(self) -> str:
        """Return a note on a rounded share of neurons; empty where none was rounded."""
        text = self.size.experts.ffn
        return "" if self.width is None or text in (None, AUTO) else self.width.size(str(text))[1]
