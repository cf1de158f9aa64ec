#: tries: returns numbers whose order or type is another
#: task: two-sum
#: verdict: wrong_answer


class Solution:
    def twoSum(self, numbers, total):
        return {0, 1, 2, 3}
