#: tries: returns the keys as bytes
#: task: table
#: verdict: wrong_answer

from collections import Counter


def table(text):
    return {word.encode(): count for word, count in Counter(text.split()).items()}
