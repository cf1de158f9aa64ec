"""Undo by statements that were proposed with the action: tested on generated rows before it, compared after it."""
