"""The kept experts of a mixture of experts, and the kept neurons of each: how many, and which."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from zerolm.architecture import Floats, Ints
from zerolm.carving.experts import expert_scores, neuron_scores
from zerolm.carving.experts.expert_choice import ChosenExperts, best_by_domains, best_by_pairs, best_experts
from zerolm.carving.experts.expert_count import (
    count_of,
    counts_of,
    largest_within,
    limits_of,
    most_within,
    tried_of,
)
from zerolm.carving.experts.expert_use import OF_NEURONS, expert_use
from zerolm.carving.experts.expert_width import ExpertWidth
from zerolm.carving.experts.fewer_experts import AXIS, NEURONS, FewerExperts, expert_layers
from zerolm.carving.experts.joint_plan import CornerCosts, least_lost
from zerolm.carving.experts.neuron_scores import best_neurons, losses
from zerolm.carving.experts.result import ExpertRow
from zerolm.carving.experts.routing import Routing
from zerolm.carving.request import Methods
from zerolm.carving.session import Session
from zerolm.checkpoints import Checkpoint, ledger_of
from zerolm.checkpoints.ledger import Ledger
from zerolm.costs import CostModel
from zerolm.io.cache import Arrays
from zerolm.planning.size_request import AUTO, WORST, SizeRequest
from zerolm.planning.sizes import costs_of, plan_of
from zerolm.progress import Progress
from zerolm.settings.compute import ComputeRequest
from zerolm.settings.domains import domains_of
from zerolm.units.importance.criterion import FirstUnits


@dataclass(frozen=True, eq=False)
class ExpertSelection:
    """A mixture of experts, and the part that a request keeps: planned and chosen lazily."""

    checkpoint: Checkpoint
    size: SizeRequest
    methods: Methods
    costs: CostModel
    compute: ComputeRequest
    progress: Progress

    @cached_property
    def routing(self) -> Routing:
        return Routing.of(self.checkpoint)

    @cached_property
    def ledger(self) -> Ledger:
        """The per-unit sums of all weights, which are checked to be finite."""
        return ledger_of(self.checkpoint, progress=self.progress)

    @cached_property
    def session(self) -> Session:
        return Session(self.checkpoint, self.methods, self.progress, self._running)

    @property
    def _running(self) -> ComputeRequest:
        """The compute settings, in float32: expert inputs are multiplied with their weights separately."""
        return replace(self.compute, dtype="float32")

    @property
    def are_chosen_by_tokens(self) -> bool:
        """Whether experts are chosen from tokens."""
        return expert_scores.needs_tokens(self.methods.criterion)

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
        text = self.methods.text
        if text is None or not expert_scores.needs_tokens(self.methods.criterion):
            return {}
        several = {name: f"{name}={one}" for name, one in domains_of(text).items()}
        return {name: self._use(self._session(one)) for name, one in several.items()} or {
            "": self._use(self.session)
        }

    def _session(self, text: str) -> Session:
        """Return a session on one of several texts."""
        return Session(self.checkpoint, replace(self.methods, text=text), self.progress, self._running)

    def _use(self, session: Session) -> dict[int, Arrays]:
        """Return the sums of the pass over the text of a session, by layer."""
        if session.tokens.ids.shape[1] < 2:
            raise ValueError("the text has one token a sequence; two at least are needed")
        cache = session.cache("experts")
        return expert_use(
            self.checkpoint,
            session.model,
            session.divided.fitted,
            neurons=self.size.experts.ffn is not None,
            cache=cache,
            progress=self.progress,
        )

    @cached_property
    def width(self) -> ExpertWidth | None:
        """The possible numbers of neurons of an expert; None where all are kept."""
        return None if self.size.experts.ffn is None else ExpertWidth.of(self.checkpoint, self.size)

    def check(self) -> None:
        """Raise ``ValueError`` for impossible sizes before any work."""
        if self.size.experts.keep == self.size.experts.ffn == AUTO and self.width is not None:
            counts, limits = counts_of(self.size, self.routing), limits_of(self.size, self._whole)
            least = self.width.possible[0]
            most_within(limits, counts, lambda count: self._corners(count, least))
        else:
            _ = self.plan

    @cached_property
    def _whole(self) -> dict[str, int]:
        """The costs of the parent."""
        return costs_of(self.checkpoint, self.costs)

    @cached_property
    def _corners(self) -> CornerCosts:
        """The costs of all possible numbers of experts and neurons."""
        assert self.width is not None
        return CornerCosts.of(counts_of(self.size, self.routing), self.width.possible, self._costs)

    @cached_property
    def plan(self) -> tuple[int, int | None]:
        """The kept experts of a layer, and neurons of each (None: all): as requested, or within budgets."""
        experts, width = self.size.experts, self.width
        if width is None:
            return self._count(None), None
        if experts.ffn != AUTO:
            neurons, _ = width.size(str(experts.ffn))
            return self._count(neurons), neurons
        counts, limits = counts_of(self.size, self.routing), limits_of(self.size, self._whole)
        if experts.keep != AUTO:
            units, costs = (
                f"neurons of each of {counts[0]} experts a layer",
                partial(self._corners, counts[0]),
            )
            return counts[0], most_within(limits, width.possible, costs, units)
        planned = least_lost(
            tried_of(counts),
            lambda count: largest_within(limits, width.possible, partial(self._corners, count)),
            lambda count: sum(each.loss or 0.0 for each in self.chosen_of(count).values()),
            lambda count, neurons: sum(
                float(self._neuron_losses[layer][each.kept, neurons].sum())
                for layer, each in self.chosen_of(count).items()
            ),
        )
        return planned.experts, planned.neurons

    def _count(self, neurons: int | None) -> int:
        """Return the number of kept experts of a layer with ``neurons`` each: as requested, or the most."""
        return count_of(self.size, self.routing, self._whole, lambda count: self._costs(count, neurons))

    @cached_property
    def _neuron_losses(self) -> dict[int, Floats]:
        """The predicted loss of each expert of a layer by number of kept neurons (e, m + 1), from tokens."""
        return {layer: losses(sums[OF_NEURONS]) for layer, sums in self.use.items()}

    def neuron_loss(self, layer: int) -> float | None:
        """Return the predicted loss of the removed neurons of kept experts; None without tokens."""
        if not self.are_chosen_by_tokens or self.width is None:
            return None
        neurons = self.plan[1] or self.width.whole
        return float(self._neuron_losses[layer][self.chosen[layer].kept, neurons].sum())

    def shaped(self, count: int | None = None, neurons: int | None = None) -> Checkpoint:
        """Return a child with these numbers of experts in a layer, and of neurons of each, for counting.

        By default they are the planned ones. Where experts and neurons are planned together by losses, which
        takes a pass, they are the smallest possible ones.
        """
        if count is None and self.size.experts.keep == self.size.experts.ffn == AUTO and self.width:
            count, neurons = counts_of(self.size, self.routing)[0], self.width.possible[0]
        if count is None:
            count, neurons = self.plan
        layers = expert_layers(self.checkpoint)
        first = {layer: np.arange(count) for layer in layers}
        narrow = {layer: np.tile(np.arange(neurons or 0), (count, 1)) for layer in layers if neurons}
        return FewerExperts(self.checkpoint, first, neurons=narrow).shaped()

    def _costs(self, count: int, neurons: int | None) -> dict[str, int]:
        """Return the costs of a child with these numbers of experts in a layer, and of neurons of each.

        Its other units have their requested shares.
        """
        rest, child = self.size.without_experts, self.shaped(count, neurons)
        if not rest.keep:
            return costs_of(child, self.costs)
        return dict(plan_of(child, FirstUnits(-1.0), rest, self.costs).costs)

    @cached_property
    def fewer(self) -> FewerExperts:
        """The child with the best experts of each layer, and the best neurons of each."""
        best = {layer: each.kept for layer, each in self.chosen.items()}
        return FewerExperts(self.checkpoint, best, neurons=self._neurons())

    def _neurons(self) -> dict[int, Ints]:
        """Return the best neurons of each kept expert, by layer; empty where all are kept."""
        count = self.plan[1]
        if self.width is None or count in (None, self.width.whole):
            return {}
        return {
            layer: best_neurons(self._neuron_scores(layer)[each.kept], count or 0)
            for layer, each in self.chosen.items()
        }

    @cached_property
    def chosen(self) -> dict[int, ChosenExperts]:
        """The experts of each layer, chosen by the criterion."""
        return self.chosen_of(self.plan[0])

    @cached_property
    def _choices(self) -> dict[int, dict[int, ChosenExperts]]:
        """The choices made so far, by the number of kept experts."""
        return {}

    def chosen_of(self, count: int) -> dict[int, ChosenExperts]:
        """Return ``count`` experts of each layer, chosen by the criterion."""
        if count in self._choices:
            return self._choices[count]
        groups, depth = self.routing.groups, self.checkpoint.layout.depth
        chosen = self._choices.setdefault(count, {})
        for layer in expert_layers(self.checkpoint):
            if self.size.experts.domains == WORST:
                by_domain = np.array([self._by_sums(use[layer]) for use in self.uses.values()])
                chosen[layer] = best_by_domains(by_domain, count, groups)
            elif expert_scores.is_of_pairs(self.methods.criterion):
                self.progress("choosing experts by their pairs", layer, depth)
                chosen[layer] = best_by_pairs(self._scores(layer), count, groups)
            else:
                chosen[layer] = ChosenExperts(best_experts(self._scores(layer), count, groups))
        return chosen

    def _neuron_scores(self, layer: int) -> Floats:
        """Return the scores (e, m) of the neurons of the experts of a layer."""
        name = self.methods.criterion
        if expert_scores.needs_tokens(name):
            return self.use[layer][OF_NEURONS]
        if name == expert_scores.RANDOM:
            sizes = self.checkpoint.layout.sizes
            return neuron_scores.drawn(self.methods.seed, layer, sizes[AXIS], sizes[NEURONS])
        self.progress("scoring neurons by their weights", layer, self.checkpoint.layout.depth)
        return neuron_scores.by_weights(self.checkpoint, layer, self.ledger)

    def _scores(self, layer: int) -> Floats:
        name = self.methods.criterion
        if expert_scores.needs_tokens(name):
            return self._by_sums(self.use[layer])
        if name == expert_scores.RANDOM:
            return expert_scores.drawn(self.methods.seed, layer, self.routing.experts)
        self.progress("scoring experts by their weights", layer, self.checkpoint.layout.depth)
        return expert_scores.by_weights(self.checkpoint, layer, self.ledger)

    def _by_sums(self, sums: Arrays) -> Floats:
        """Return the scores of experts, or the losses of their pairs, from the sums of a layer."""
        by_sums = expert_scores.EXPERT_CRITERIA[self.methods.criterion]
        assert by_sums is not None
        return by_sums(sums)

    def kept_shares(self, layer: int, kept: Ints) -> dict[str, float]:
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

    def described(self, layer: int, chosen: ChosenExperts) -> ExpertRow:
        """Return the description of a choice of experts: shares of tokens, gates and scores, loss and gap."""
        return ExpertRow(
            layer,
            chosen.kept.tolist(),
            self._share(layer, "count", chosen.kept),
            self._share(layer, "gate", chosen.kept),
            chosen.loss,
            chosen.gap,
            domains=self.kept_shares(layer, chosen.kept),
        )

    def _share(self, layer: int, name: str, kept: Ints) -> float | None:
        """Return the share of the kept experts in a sum; None without one."""
        sums = self.use.get(layer)
        total = 0.0 if sums is None else float(sums[name].sum())
        return float(sums[name][kept].sum()) / total if sums is not None and total else None

    def rounding(self) -> str:
        """Return a note on a rounded share of neurons; empty where none was rounded."""
        text = self.size.experts.ffn
        return "" if self.width is None or text in (None, AUTO) else self.width.size(str(text))[1]
