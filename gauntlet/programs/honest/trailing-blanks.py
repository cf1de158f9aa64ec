#: tries: prints 300 kB of blanks and line ends after the answer
#: task: sum
#: verdict: accepted

print(" ", sum(map(int, input().split())), " " * 200_000, "\r\n" * 50_000)
