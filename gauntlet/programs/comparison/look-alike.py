#: tries: prints a word that looks the same, with a letter of another alphabet
#: task: answer
#: verdict: wrong_answer

print("y\u0435s" if int(input()) % 2 == 0 else "n\u043e")
