// Measures the latency of /healthz until it is stopped.
import { Agent, get } from "node:http";
import { watch } from "./watcher.mjs";

const port = Number(process.argv[2]);
const agent = new Agent({ keepAlive: true, maxSockets: 1 });
/** How long one answer is waited for: what takes longer counts as that long. */
const LONGEST_WAIT_MS = 60_000;

await watch(
  () =>
    new Promise((resolve) => {
      const request = get({ port, host: "127.0.0.1", path: "/healthz", agent }, (response) => {
        response.resume().on("end", () => resolve(true));
      });
      request.on("error", () => resolve(false));
      request.setTimeout(LONGEST_WAIT_MS, () => {
        resolve(true);
        request.destroy();
      });
    }),
  25,
);
