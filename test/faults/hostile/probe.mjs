// Measures the latency of /healthz until told to stop.
import { Agent, get } from "node:http";

const port = Number(process.argv[2]);
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
const times = [];
let stopped = false;
process.on("message", () => {
  stopped = true;
});
process.on("disconnect", () => process.exit(0));
process.send("ready");
while (!stopped) {
  const began = performance.now();
  const answered = await new Promise((resolve) => {
    get({ port, host: "127.0.0.1", path: "/healthz", agent }, (response) => {
      response.resume().on("end", () => resolve(true));
    }).on("error", () => resolve(false));
  });
  if (answered) times.push(performance.now() - began);
  await new Promise((resolve) => setTimeout(resolve, 25));
}
times.sort((a, b) => a - b);
const at = (share) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0);
process.send({ p99Ms: at(0.99), maxMs: at(1) }, () => process.exit(0));
