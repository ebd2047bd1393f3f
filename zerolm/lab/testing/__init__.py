"""The conformance suite for authors of proxies."""

from zerolm.lab.testing.proxies import ProxyConformance, check_proxy

__all__ = ["ProxyConformance", "check_proxy"]
