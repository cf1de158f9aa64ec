#: tries: separates lines by a lone carriage return, form feed or the like
#: task: lines
#: verdict: wrong_answer

print(*input().split(), 9, sep="\r\f\v\x1c\x85\u2028")
