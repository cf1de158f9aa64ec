"""What the pages about a run share: reading its folder, words for numbers, and HTML that loads nothing.

`report` and `view` are built on it. Imports `core`, jinja2 and yaml; no torch, nothing else of ours.
"""
