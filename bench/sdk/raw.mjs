// The same bytes as a workload, without an SDK: through undici alone (`undici`), or through bare sockets (`loopback`).
import { connect, createServer } from "node:net";
import { Pool } from "undici";
import { sampledTokens, tokenAt } from "./workload.mjs";

const [via, text] = process.argv.slice(2);
const { kind, datums, length, rounds, samples, promptLength } = JSON.parse(text);
const baseURL = process.env.TINKER_BASE_URL;
/** Tokens as int32, targets as int64, weights as float32. */
const BYTES_PER_TOKEN = 16;
const json = { "content-type": "application/json" };

async function throughUndici() {
  const pool = new Pool(baseURL, { connections: kind === "pass" ? 4 : 128 });
  const post = async (path, headers, body) => {
    const answer = await pool.request({ path: `/api/v1/${path}`, method: "POST", headers, body });
    return Buffer.from(await answer.body.arrayBuffer());
  };
  const submitAndRead = async (path, headers, body) => {
    const { request_id } = JSON.parse(await post(path, headers, body));
    return post("retrieve_future", json, JSON.stringify({ request_id, allow_metadata_only: true }));
  };
  if (kind === "pass") {
    const body = Buffer.alloc(datums * length * BYTES_PER_TOKEN, 1);
    const one = () => submitAndRead("forward_backward", { "content-type": "application/x-protobuf" }, body);
    await one();
    return measured(async () => {
      for (let index = 0; index < rounds; index += 1) await one();
    });
  }
  const prompt = {
    chunks: [{ type: "encoded_text", tokens: Array.from({ length: promptLength }, (_, i) => tokenAt(i)) }],
  };
  const body = JSON.stringify({
    num_samples: 1,
    prompt,
    sampling_params: { max_tokens: sampledTokens },
    seq_id: 1,
  });
  const one = () => submitAndRead("asample", json, body);
  await one();
  return measured(async () => {
    for (let index = 0; index < rounds; index += 1) await Promise.all(Array.from({ length: samples }, one));
  });
}

/** Sends a batch and reads its result over one socket, by length alone. */
async function throughSockets() {
  const sent = datums * length * BYTES_PER_TOKEN;
  const received = length < 16 ? datums * 2048 * 4 : 64;
  const result = Buffer.alloc(received, 2);
  const server = createServer((socket) => {
    let bytes = 0;
    socket.on("data", (chunk) => {
      bytes += chunk.length;
      if (bytes < sent) return;
      bytes -= sent;
      socket.write(result);
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const socket = connect(server.address().port, "127.0.0.1");
  const body = Buffer.alloc(sent, 1);
  const one = () =>
    new Promise((resolve) => {
      let bytes = 0;
      const onData = (chunk) => {
        bytes += chunk.length;
        if (bytes < received) return;
        socket.off("data", onData);
        resolve();
      };
      socket.on("data", onData);
      socket.write(body);
    });
  await one();
  const figures = await measured(async () => {
    for (let index = 0; index < rounds; index += 1) await one();
  });
  socket.destroy();
  server.close();
  return figures;
}

async function measured(work) {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await work();
  const { user, system } = process.cpuUsage(cpu);
  return { seconds: (performance.now() - start) / 1000, cpuSeconds: (user + system) / 1e6 };
}

console.log(JSON.stringify(via === "undici" ? await throughUndici() : await throughSockets()));
process.exit(0);
