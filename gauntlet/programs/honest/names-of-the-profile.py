#: tries: uses names that the profile imports
#: task: sum
#: verdict: accepted

heap = [int(word) for word in input().split()]
heapify(heap)
counts = Counter(heap)
print(reduce(lambda a, b: a + b, [key * count for key, count in counts.items()]))
