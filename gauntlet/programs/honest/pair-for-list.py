#: tries: returns a tuple at the top, where a list is expected
#: task: two-sum
#: verdict: accepted


class Solution:
    def twoSum(self, nums, target):
        places = ((i, j) for j in range(len(nums)) for i in range(j) if nums[i] + nums[j] == target)
        return next(places)
