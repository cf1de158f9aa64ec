"""Conformance suite of sandboxes, as tests that any backend can run. Needs pytest; nothing else of ours imports it.

Subclass the class of the level that the backend claims, and override the fixture `sandbox`:

    class TestMine(SealedConformance):
        @pytest.fixture(scope="class")
        @classmethod
        def sandbox(cls):
            opened = open_sandbox(SandboxConfig(backend="mine", **SETTINGS))
            yield opened
            opened.close()

Each class has all tests of the levels below it. `check_closing` is for a sandbox that no other test uses.
"""

from autoclave_testing.sandboxes.cells import LIMITS, MINIMAL, PLAIN, SETTINGS, check_closing
from autoclave_testing.sandboxes.confined import RestrictedConformance, SealedConformance
from autoclave_testing.sandboxes.open import SandboxConformance

__all__ = [
    "LIMITS",
    "MINIMAL",
    "PLAIN",
    "SETTINGS",
    "RestrictedConformance",
    "SandboxConformance",
    "SealedConformance",
    "check_closing",
]
