"""`python -m autoclave` is `autoclave`."""

from autoclave.cli import main

main()
