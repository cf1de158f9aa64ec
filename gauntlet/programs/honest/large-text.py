#: tries: returns 300 kB of text, more than the channel takes in one piece
#: task: repeated
#: verdict: accepted


def repeated(text, count):
    return text * count
