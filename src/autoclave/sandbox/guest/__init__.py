"""Code inside the sandbox: in the zygote, in the first process of a cell, and in the process of a test.

It runs in a bare interpreter (no site-packages, no import of autoclave), so these modules import the standard library
and each other only. They hold no secrets: a program can read every byte of them.
"""
