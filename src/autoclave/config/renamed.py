"""Earlier names of commands and fields of the runtime. An old name is an error that gives the new one."""

RENAMED_COMMANDS = {"pairs": "compensations"}
"""Commands of `autoclave act`."""
RENAMED_IN_CONNECTIONS = {"holds": "queue_up_to", "hold_s": "queue_s (services) or transaction_timeout_s (databases)"}
RENAMED_IN_CATALOGUES = {"look": "read_back", "looks": "read_backs"}
"""Fields in the catalogues of services."""
