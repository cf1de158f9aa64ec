#: tries: reads until there is nothing left
#: task: lines
#: verdict: accepted

while True:
    try:
        line = input()
    except EOFError:
        break
    for word in line.split():
        print(word)
