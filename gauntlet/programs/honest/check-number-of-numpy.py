#: tries: returns a number of numpy
#: task: mean-check
#: verdict: accepted

import numpy as np


def mean(numbers):
    return np.mean(numbers)
