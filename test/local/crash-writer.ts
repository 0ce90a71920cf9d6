/** Saves checkpoints through the server as fast as it can and prints each one that was acknowledged; waits to be killed. */
import { type RawClient, startFake, stepBody, weightedPass } from "./raw-client.js";

const { client } = await startFake({ dataDir: process.argv[2]! });
const raw: RawClient = client;
const sessionId = await raw.openSession();
const modelId = await raw.createModel(sessionId, 0, 5);
let seqId = 1;
for (let round = 0; ; round += 1) {
  await raw.result(raw.ok("/forward_backward", weightedPass(modelId, seqId++, round)));
  await raw.result(raw.ok("/optim_step", stepBody(modelId, seqId++, 1)));
  // Every other one replaces the checkpoint of that name.
  const name = round % 2 === 0 ? `step-${round}` : "latest";
  const before = {
    model_id: modelId,
    seq_id: seqId++,
    path: name,
    overwrite: true,
    user_metadata: { round: String(round) },
  };
  process.stdout.write(`saving ${name} ${round}\n`);
  const { path } = await raw.result(raw.ok("/save_weights", before));
  process.stdout.write(`saved ${name} ${round} ${String(path)}\n`);
}
