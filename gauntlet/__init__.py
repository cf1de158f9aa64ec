"""Adversarial programs for the judge, as data, and the driver that runs them: `python -m gauntlet`.

Repository tooling like `benchmarks/`; not part of the installed package. README.md says how to add an entry.
"""
