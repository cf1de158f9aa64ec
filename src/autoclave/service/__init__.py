"""The judge over HTTP: server, store, client. Imports `judge`, `config` and `core`; free of torch.

    client -> server.py, routes/ -> dispatcher.py -> a `Judge` that is handed in
                                       |
                                    store/: problems by digest, tokens, the table of jobs

A job is accepted when its row is in the store, where it is queued; `dispatcher.py` claims jobs and stores verdicts.
Several servers may share a store (`nodes.py`). `client.py` is a `Judge` whose programs run on such servers. Needs the
extra `serve`, except for this module.
"""
