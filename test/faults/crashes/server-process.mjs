// `tinkerts serve` and `tinkerts gateway` as processes that can be killed and started again on the same data.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { TINY_MODEL } from "../shared/tiny-model.mjs";

const main = fileURLToPath(new URL("../../../dist/bundle/cli.js", import.meta.url));

/** The server ended, or never came up: what it said, for people to read. */
export class ServerEnded extends Error {
  constructor(code, said) {
    super(`the server ended with ${code}: ${said}`);
    this.code = code;
    this.said = said;
  }
}

class ListeningProcess {
  baseURL = "";
  said = "";
  #child;
  #exited;

  /** Starts at once; `started` resolves when it has printed its address as this variable. */
  constructor(args, variable) {
    this.#child = spawn(process.execPath, [main, ...args], { stdio: ["ignore", "pipe", "pipe"] });
    this.#exited = once(this.#child, "close");
    let printed = "";
    const listening = new Promise((resolve) => {
      this.#child.stdout.setEncoding("utf8").on("data", (text) => {
        printed += text;
        const found = new RegExp(`${variable}=(\\S+)\n`).exec(printed);
        if (found !== null) resolve(found[1]);
      });
    });
    this.#child.stderr.setEncoding("utf8").on("data", (text) => {
      this.said += text;
    });
    this.started = Promise.race([
      listening.then((baseURL) => {
        this.baseURL = baseURL;
        return this;
      }),
      this.#exited.then(([code, signal]) => {
        throw new ServerEnded(code ?? signal, this.said.trim());
      }),
    ]);
    this.started.catch(() => {});
  }

  get hasEnded() {
    return this.#child.exitCode !== null || this.#child.signalCode !== null;
  }

  async kill() {
    this.#child.kill("SIGKILL");
    await this.#exited;
  }

  /** Asks it to end, as Ctrl-C does. */
  async stop() {
    this.#child.kill("SIGINT");
    await this.#exited;
  }
}

/** The server of a data folder. */
export class ServerProcess extends ListeningProcess {
  constructor({ dataDir, modelFolder, port = 0 }) {
    const options = ["--port", String(port), "--threads", "1", "--data-dir", dataDir];
    // Without one it serves the model of the package.
    if (modelFolder !== undefined) options.push("--model", `${TINY_MODEL}=${modelFolder}`);
    super(["serve", ...options], "TINKER_BASE_URL");
  }
}

/** A gateway that records, over a server. Its address is that of OpenAI's API, without a session. */
export class GatewayProcess extends ListeningProcess {
  constructor({ server, model, folder, port = 0 }) {
    const source = ["--base-url", server, "--api-key", "tml-local", "--model", model];
    super(["gateway", ...source, "--record", folder, "--port", String(port)], "OPENAI_BASE_URL");
  }
}
