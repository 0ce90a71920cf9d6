// A process beside the server that watches it all along and says at the end what it saw.
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/** Starts one of the scripts beside this file; `stop` ends it and gives what it reports. */
export async function startWatcher(script, ...args) {
  const child = fork(fileURLToPath(new URL(script, import.meta.url)), args.map(String));
  await once(child, "message");
  return {
    async stop() {
      child.send("stop");
      const [report] = await once(child, "message");
      return report;
    },
  };
}

/** Inside such a script: repeats `attempt` until it is stopped; reports how long each took, and `more`. */
export async function watch(attempt, pauseMs, more = () => ({})) {
  const times = [];
  let isStopped = false;
  process.on("message", () => {
    isStopped = true;
  });
  process.on("disconnect", () => process.exit(0));
  process.send("ready");
  while (!isStopped) {
    const began = performance.now();
    if (await attempt()) times.push(performance.now() - began);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
  times.sort((a, b) => a - b);
  const at = (share) => Math.round(times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0);
  process.send({ times: times.length, p50Ms: at(0.5), p99Ms: at(0.99), maxMs: at(1), ...more() }, () =>
    process.exit(0),
  );
}
