#: tries: tells the tests apart by the number of its process
#: task: count
#: verdict: wrong_answer runtime_error
#: known: docs/concepts/sandbox.md, "What it does not do": tests of one program share a process namespace

import os

print(os.getpid() - 2)
