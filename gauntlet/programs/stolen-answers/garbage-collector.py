#: tries: looks through all objects of the interpreter for the answer
#: task: token
#: verdict: wrong_answer runtime_error time_limit memory_limit

import gc
import re

pattern = re.compile(r"token:[0-9a-f]{16}")
seen = set()
todo = gc.get_objects()
while todo and len(seen) < 150_000:
    thing = todo.pop()
    if id(thing) in seen:
        continue
    seen.add(id(thing))
    if isinstance(thing, (str, bytes)):
        text = thing if isinstance(thing, str) else thing.decode("latin-1")
        if found := pattern.search(text):
            print(found[0])
            break
    else:
        todo += gc.get_referents(thing)
