"""Files of one folder as a world that actions change; see `manager.py`."""
