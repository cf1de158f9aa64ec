#: tries: keeps the argument of the first call in modules, classes and caches for the second
#: task: recall-call
#: verdict: wrong_answer runtime_error

import builtins
import functools
import sys

memory = {}


@functools.lru_cache(None)
def store():
    return []


def recall(text, default=[]):
    if text:
        memory["text"] = sys.text = builtins.text = text
        default.append(text)
        store().append(text)
        return text
    for found in (*default, *store(), memory.get("text"), getattr(sys, "text", None), getattr(builtins, "text", None)):
        if found:
            return found
    return ""
