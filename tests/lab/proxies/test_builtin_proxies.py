"""Every proxy of zerolm satisfies what it asks of the proxies of others."""

from __future__ import annotations

import pytest

from zerolm.lab.testing.proxies import ProxyConformance, check_proxy
from zerolm.lab.zero_cost import proxy_names


@pytest.mark.parametrize("name", proxy_names())
def test_built_in(name: str) -> None:
    check_proxy(name)


class TestAsAPlugInWould(ProxyConformance):
    """The suite as the author of a plug-in takes it."""

    proxy = "naswot"
