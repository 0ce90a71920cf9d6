import { execFile } from "node:child_process";
import { closeSync, mkdtempSync, openSync, rmSync, statSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, expect, it } from "vitest";
import { packageFolder } from "../support/newcomer.js";

const folder = mkdtempSync(join(tmpdir(), "large-file-"));
afterAll(() => rmSync(folder, { recursive: true }));

const ROWS = 300_000;
const ROWS_AT_ONCE = 1000;
const FILLER = "x".repeat(900);
/** Node and the package alone take about half of it. */
const MAX_PEAK_BYTES = 180e6;

/** Runs in a process of its own, whose memory is the answer. */
const READER = `
const { batches, conversations } = await import(process.argv[1]);
const rows = await conversations(process.argv[2]).open();
const plan = batches(rows, { batchSize: 128, seed: 1 });
let isRight = true;
for (let step = 0; step < 50; step += 1) {
  const indices = plan.indices(step);
  const read = await rows.read(indices);
  isRight &&= read.every(({ messages }, place) => messages[0].content.startsWith(indices[place] + " "));
}
await rows.close();
console.log(JSON.stringify({ length: rows.length, isRight, peakBytes: process.resourceUsage().maxRSS * 1024 }));
`;

const chat = (content: string) => ({
  messages: [
    { role: "user", content },
    { role: "assistant", content: "ok" },
  ],
});

it.each([
  ["large.jsonl", "", (content: string) => `${JSON.stringify(chat(content))}\n`],
  ["large.csv", "prompt,completion\n", (content: string) => `"${content}",ok\n`],
])("a file of 300 MB is read from all over while memory stays small: %s", async (name, header, line) => {
  const path = join(folder, name);
  const file = openSync(path, "w");
  writeSync(file, header);
  for (let start = 0; start < ROWS; start += ROWS_AT_ONCE) {
    const rows = Array.from({ length: ROWS_AT_ONCE }, (_, index) => line(`${start + index} ${FILLER}`));
    writeSync(file, rows.join(""));
  }
  closeSync(file);
  expect(statSync(path).size).toBeGreaterThan(270e6);
  const entry = pathToFileURL(join(packageFolder, "dist/bundle/cookbook.js")).href;
  const args = ["--input-type=module", "-e", READER, entry, path];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const { peakBytes, ...read } = JSON.parse(stdout);
  expect(read).toEqual({ length: ROWS, isRight: true });
  expect(peakBytes).toBeLessThan(MAX_PEAK_BYTES);
});
