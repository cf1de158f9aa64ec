#: tries: prints equal numbers in another form
#: task: tenth
#: verdict: accepted

number = int(input())
print(f"{number}e-1")
