#: tries: prints words with other blanks where words are compared
#: task: sum-tokens
#: verdict: accepted

print(f"\n\t{sum(map(int, input().split()))}  \n\n")
