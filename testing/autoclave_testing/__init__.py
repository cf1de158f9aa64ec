"""Tests that implementations of Autoclave's interfaces must pass, for plugins and for the built-in ones. Needs pytest.

`sandboxes` for backends, `engines` for sampler engines, `managers` for managers of actions. No part of Autoclave
imports this package.
"""
