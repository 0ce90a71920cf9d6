"""The Python cookbook's side of bench/export.mjs: merge.py BASE ADAPTER OUTPUT. Imports are not part of the seconds."""

import json
import resource
import sys
import time

from tinker_cookbook import weights

base, adapter, output = sys.argv[1:]
begin = time.perf_counter()
weights.build_hf_model(base_model=base, adapter_path=adapter, output_path=output)
seconds = time.perf_counter() - begin
used = resource.getrusage(resource.RUSAGE_SELF)
cpu_seconds = used.ru_utime + used.ru_stime
print(json.dumps({"seconds": seconds, "cpuSeconds": cpu_seconds, "megabytes": used.ru_maxrss / 1024}))
