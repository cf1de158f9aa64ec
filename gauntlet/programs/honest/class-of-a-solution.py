#: tries: is a class with helpers and a cache
#: task: two-sum
#: verdict: accepted

from functools import lru_cache


class Solution:
    def __init__(self):
        self.seen = {}

    @lru_cache(None)
    def missing(self, total, number):
        return total - number

    def twoSum(self, nums: List[int], target: int) -> List[int]:
        for index, number in enumerate(nums):
            if self.missing(target, number) in self.seen:
                return [self.seen[self.missing(target, number)], index]
            self.seen[number] = index
