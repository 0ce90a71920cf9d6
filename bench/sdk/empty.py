# A process that does nothing: the floor of every memory figure.
import json, resource

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"peakMegabytes": peak, "seconds": 0, "cpuSeconds": 0}))
