/** Runs one command line after the other in a process that has loaded the command already, and tells what each printed. */
import { Readable } from "node:stream";

const main = process.argv[2];
let number = 0;
let last = Promise.resolve();
process.setMaxListeners(0);
process.stdout.setMaxListeners(0);
process.stderr.setMaxListeners(0);

async function runOne({ id, args, cwd, env, input }) {
  const output = { stdout: "", stderr: "" };
  for (const name of Object.keys(output)) {
    process[name].write = (chunk, encoding, callback) => {
      output[name] += Buffer.from(chunk).toString();
      const done = typeof encoding === "function" ? encoding : callback;
      if (done) setImmediate(done);
      return true;
    };
  }
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.chdir(cwd);
  Object.defineProperty(process, "stdin", { value: Readable.from([input]), configurable: true });
  process.argv = [process.argv[0], main, ...args];
  process.exitCode = undefined;
  // Another query is another module to Node: the file runs again, and what it imports is loaded once.
  await import(`${main}?${number++}`);
  const code = process.exitCode ?? 0;
  process.exitCode = undefined;
  process.removeAllListeners("uncaughtException");
  process.send({ id, finished: { code, ...output } });
}

process.on("message", (command) => {
  last = last.then(() => runOne(command));
});
process.on("disconnect", () => process.exit());
