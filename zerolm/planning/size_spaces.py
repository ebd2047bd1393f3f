"""All spaces of sizes by name: importing this module registers those of zerolm."""

from zerolm.planning import heads_ffn as heads_ffn
from zerolm.planning.size_space import SIZE_SPACES as SIZE_SPACES
