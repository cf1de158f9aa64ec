"""Sampling: the worker that holds an engine, and the pool of such workers as one `Sampler`."""
