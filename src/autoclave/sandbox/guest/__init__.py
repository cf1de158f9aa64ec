"""The code on the far side: it runs in the zygote, in the first process of a cell, and in the process of a test.

Shipped to a bare interpreter (no site-packages, nothing of ours importable), so these modules import the standard
library and each other, nothing else. They hold no secrets: a program can read every byte of them.
"""
