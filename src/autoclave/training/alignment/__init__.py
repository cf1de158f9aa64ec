"""Execution-semantics alignment: alignment samples from what programs of a run did, mixed into its batches.

`candidates` chooses runs that are traced, `buffer` keeps the alignment samples that came of them, `mixing` says how
many a step has, `items` deals both kinds of prompts, and `alignment` is what a run knows of it all.
"""
