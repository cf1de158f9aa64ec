#: tries: recurses deeply without asking
#: task: sum
#: verdict: accepted


def total(numbers, depth):
    return sum(numbers) if depth == 0 else total(numbers, depth - 1)


print(total(list(map(int, input().split())), 30_000))
