"""MongoDB. Has not yet been run on a real server."""
