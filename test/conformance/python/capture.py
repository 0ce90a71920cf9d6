"""The Python cookbook's capture store as a judge: reads a file of capture records and gives the rows that it holds then.
Run by capture.test.ts."""

import json
import logging
import os
import sys
import tempfile
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
import transformers  # noqa: F401

from character_tokenizer import SHIMS

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

from tinker_cookbook.capture.store.client import wire_rows_from_sample_record
from tinker_cookbook.capture.store.db import CaptureDB

with open(os.environ["CAPTURED"]) as file:
    records = [json.loads(line) for line in file]
rows = [row for record in records for row in wire_rows_from_sample_record(record)]
with tempfile.TemporaryDirectory() as folder:
    store = CaptureDB(os.path.join(folder, "capture.sqlite"))
    counts = [store.ingest_wire(rows), store.ingest_wire(rows)]
    found = [row for run in store.list_runs() for row in store.query_rows(run.run_id)]
    store.close()
print(
    json.dumps(
        {
            "kinds": sorted({record["kind"] for record in records}),
            "inserted": counts[0].inserted,
            "deduped": counts[1].deduped,
            "rows": found,
        }
    )
)
