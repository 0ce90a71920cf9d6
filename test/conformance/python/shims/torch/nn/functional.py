import numpy as np


def logsigmoid(values):
    return -np.logaddexp(0, -values)
