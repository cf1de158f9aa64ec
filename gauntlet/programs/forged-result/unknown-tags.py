#: tries: names decoders that do not exist, and Python types, in the tag of a value
#: task: add
#: verdict: wrong_answer runtime_error

import os

for tag in ("object", "eval", "__import__", "type", "code"):
    frame = b'["value",{"$":"%s","v":"7"}]' % tag.encode()
    os.write(3, len(frame).to_bytes(4, "big") + frame)
os._exit(0)
