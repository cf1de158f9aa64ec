"""Files of one folder as a resource that actions change; see `manager.py`."""
