"""A pass whose server is restarted before its result is there; run by python-client.test.ts."""

import json
import os
import warnings

warnings.simplefilter("ignore")

import tinker
from tinker import types

training = tinker.ServiceClient().create_lora_training_client(os.environ["MODEL"], rank=4)
inputs = {"target_tokens": [2, 3], "weights": [1.0, 1.0]}
datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2]), loss_fn_inputs=inputs)
try:
    training.forward_backward([datum], "cross_entropy").result()
except tinker.RequestFailedError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    os._exit(0)
