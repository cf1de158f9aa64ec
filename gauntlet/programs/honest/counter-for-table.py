#: tries: returns subclasses of the builtin types
#: task: table
#: verdict: accepted

from collections import Counter


def table(text):
    return Counter(text.split())
