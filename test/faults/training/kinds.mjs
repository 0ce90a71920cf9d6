// The runs that are killed: their data, their command, and how much of two runs must be the same.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { unsampledTokens } from "./agent-samples.mjs";

const BATCH = 4;
const ROWS = 48;
const STEPS_PER_EPOCH = (ROWS - BATCH) / BATCH;

/** The command of a kind with its data in `folder`, for at least so many steps. */
const rowsKind = (command, row) => ({
  isExact: true,
  prepare: (folder, steps) => {
    const file = join(folder, "rows.jsonl");
    const rows = Array.from({ length: ROWS }, (_, index) => JSON.stringify(row(index)));
    writeFileSync(file, `${rows.join("\n")}\n`);
    const epochs = Math.ceil(steps / STEPS_PER_EPOCH);
    const sizes = ["--epochs", String(epochs), "--batch-size", String(BATCH), "--test-size", String(BATCH)];
    return {
      command: ["train", command, file, ...sizes, "--save-every", "5"],
      steps: epochs * STEPS_PER_EPOCH,
    };
  },
});

const reinforcementKind = (mode, { isExact }) => ({
  isExact,
  prepare: (folder, steps) => {
    const file = join(folder, "problems.mjs");
    writeFileSync(file, PROBLEMS);
    const sizes = ["--group-size", "4", "--groups-per-batch", "3", "--max-tokens", "6", "--save-every", "3"];
    return {
      command: ["train", "rl", file, "--mode", mode, "--steps", String(steps), ...sizes],
      steps,
    };
  },
});

const PROBLEMS = `
export default {
  problems: (index) => ({ prompt: \`What is \${(index * 37) % 90} + \${(index * 59) % 97}?\` }),
  reward: ({ text }) => [...text].reduce((sum, character) => sum + character.charCodeAt(0), 0) % 10,
};
`;

const AGENT = fileURLToPath(new URL("agent.mjs", import.meta.url));
/** Two problems to a step, so that agents die, ask again and edit in every run. */
const agentKind = {
  isExact: true,
  prepare: (folder, steps) => {
    const rows = Array.from({ length: 60 }, (_, number) => JSON.stringify({ number }));
    const [problems, reward] = [join(folder, "problems.jsonl"), join(folder, "reward.mjs")];
    writeFileSync(problems, `${rows.join("\n")}\n`);
    writeFileSync(reward, REWARD);
    const sizes = ["--group-size", "3", "--groups-per-batch", "2", "--max-tokens", "6", "--save-every", "3"];
    const agent = ["--agent", `node "${AGENT}"`, "--reward", reward];
    return { command: ["train", "rl", problems, ...agent, "--steps", String(steps), ...sizes], steps };
  },
  check: unsampledTokens,
};

const REWARD = `
export default ({ text }) => [...text].reduce((sum, character) => sum + character.charCodeAt(0), 0) % 10;
`;

const word = (row) => (row * 7919).toString(36);

/** `isExact`: a run that is disturbed ends with the bits of one that is not. `check` finds what is wrong with any of them. */
export const KINDS = {
  supervised: rowsKind("sft", (row) => ({
    messages: [
      { role: "user", content: `Say it twice: ${word(row)}` },
      { role: "assistant", content: `${word(row)} ${word(row)}` },
    ],
  })),
  dpo: rowsKind("dpo", (row) => ({
    prompt: `Say it twice: ${word(row)}`,
    chosen: `${word(row)} ${word(row)}`,
    rejected: word(row),
  })),
  synchronous: reinforcementKind("synchronous", { isExact: true }),
  streamed: reinforcementKind("streamed", { isExact: true }),
  agent: agentKind,
  // Which weights sample is a matter of time.
  asynchronous: reinforcementKind("asynchronous", { isExact: false }),
};
