"""Sub-networks are drawn of the whole space alike, within budgets, and never twice."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tiny import saved

from zerolm.checkpoints import Checkpoint
from zerolm.costs import COSTS, CostModel
from zerolm.lab.subnets.draws import drawn_sizes
from zerolm.lab.subnets.slicing import cuts_of, space_of
from zerolm.planning.part_costs import Choices, PartCosts
from zerolm.planning.sizes import costs_of, part_costs_of
from zerolm.units.importance.criterion import FirstUnits

Drawn = tuple[Checkpoint, Choices, PartCosts]


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    checkpoint = Checkpoint.open(saved(tmp_path_factory.mktemp("parent") / "llama", "llama_tied"))
    _, choices = space_of(checkpoint, "heads-ffn")
    return checkpoint, choices, part_costs_of(checkpoint, choices, CostModel(), "heads-ffn")


@pytest.mark.parametrize("seed", range(3))
def test_draws_keep_to_their_budgets(seed: int, space: Drawn) -> None:
    """Each costs what ``carve`` would count for its cut, and none comes twice."""
    checkpoint, choices, costs_by_part = space
    whole = costs_of(checkpoint, CostModel())
    low = 0.5 + 0.1 * seed
    limits = {"min_params": int(low * whole["params"]), "max_params": int((low + 0.1) * whole["params"])}
    limits["max_macs"] = int(0.9 * whole["macs"])
    sizes = drawn_sizes(choices, costs_by_part, 3, 5, seed, limits)
    assert len(set(sizes)) == 5
    for cut in cuts_of(checkpoint, FirstUnits(None), sizes):
        costs = costs_of(checkpoint, CostModel(), cut)
        assert limits["min_params"] <= costs["params"] <= limits["max_params"]
        assert costs["macs"] <= limits["max_macs"]


def test_a_small_space_is_drawn_to_its_end(space: Drawn) -> None:
    checkpoint, _, _ = space
    choices = Choices(((1, 2), (10, 40)), (3,))
    costs_by_part = part_costs_of(checkpoint, choices, CostModel(), "heads-ffn")
    sizes = drawn_sizes(choices, costs_by_part, 3, 64, 0, {})
    assert set(sizes) == set(product(product((1, 2), (10, 40)), repeat=3))
    assert drawn_sizes(choices, costs_by_part, 3, 64, 1, {}) != sizes
    with pytest.raises(
        ValueError, match=r"^only 64 of 65 different sub-networks were sampled; ask for 64 at most$"
    ):
        drawn_sizes(choices, costs_by_part, 3, 65, 0, {})
    most = sorted(int(costs_by_part.of(dict(enumerate(each)))[COSTS.index("macs")]) for each in sizes)
    within = sum(one >= most[-5] for one in most)
    assert len(drawn_sizes(choices, costs_by_part, 3, within, 0, {"min_macs": most[-5]})) == within
    with pytest.raises(ValueError, match=f"^only {within} of {within + 1} different sub-networks within"):
        drawn_sizes(choices, costs_by_part, 3, within + 1, 0, {"min_macs": most[-5]})
    with pytest.raises(ValueError, match="no sub-network within the budgets was sampled: widen them"):
        drawn_sizes(choices, costs_by_part, 3, 1, 0, {"max_macs": 1})


def test_draws_are_of_all_sub_networks_alike(space: Drawn) -> None:
    """Of 40 widths in three layers the mean of many draws is that of the space, by six deviations."""
    _, choices, costs_by_part = space
    sizes = np.array(drawn_sizes(choices, costs_by_part, 3, 4000, 0, {}))
    for kind, values in enumerate(choices.units):
        deviation = np.std(values) / np.sqrt(4000)
        assert (abs(sizes[:, :, kind].mean(0) - np.mean(values)) < 6 * deviation).all()
