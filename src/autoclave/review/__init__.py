"""The review page of `autoclave act serve`: what was done to a folder, and its undo, in a browser on this machine."""
