import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { longTest } from "../support/long.js";

const script = fileURLToPath(new URL("../../scripts/faults.mjs", import.meta.url));

/** The command of `npm run faults`, over the build that `npm test` makes first. */
function faults(...args: string[]): Promise<{ code: number | null; output: string; summary: Summary }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [script, ...args], { stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output += text;
    });
    child.on("error", reject);
    child.on("close", (code) => {
      const summary = JSON.parse(output.trim().split("\n").at(-1) ?? "") as Summary;
      resolve({ code, output, summary });
    });
  });
}

interface Summary {
  runs: number;
  faults: Record<string, number>;
  kills: Record<string, number>;
  differences: string[];
}

longTest("a short `npm run faults` ends like the undisturbed run over a disturbed network", async () => {
  const { code, output, summary } = await faults("--seeds", "2", "--steps", "40", "--samples", "100");
  expect(summary.differences, output).toEqual([]);
  expect(summary.runs).toBe(2);
  expect(Object.keys(summary.faults).length).toBeGreaterThan(15);
  expect(code).toBe(0);
});

longTest(
  "a short `npm run faults` loses no acknowledged checkpoint to kill -9, a full or a read-only disk",
  async () => {
    const { code, output, summary } = await faults("--kills", "3");
    expect(summary.differences, output).toEqual([]);
    expect(Object.values(summary.kills).reduce((sum, each) => sum + each, 0)).toBe(3);
    expect(code).toBe(0);
  },
);

describe("the comparison with the undisturbed run", () => {
  const event = (f: string, fingerprint: string, at: number) => ({
    f,
    fingerprint,
    adapterId: "model-m",
    begin: at,
    end: at + 1,
  });
  const operation = (key: string, at: number) => ({
    f: "optimStep",
    key,
    type: "ok",
    invoke: at - 1e7,
    end: at + 1e7,
  });
  const run = { operations: [operation("0", 1e9), operation("1", 2e9)], error: undefined, leftovers: [] };
  const history = [event("optimStep", "a", 1e9), event("optimStep", "b", 2e9)];

  async function compare(
    changed: { operations?: object[]; history?: object[]; adapterHash?: string; leftovers?: string[] } = {},
  ): Promise<string> {
    const check = await import(new URL("./network/check.mjs", import.meta.url).href);
    const outcome = (backendHistory: object[], adapterHash: string) =>
      check.outcomeOf({ operations: run.operations, backendHistory, modelId: "m", adapterHash });
    const expected = { operations: run.operations, outcome: outcome(history, "bits") };
    const disturbed = { ...run, ...changed };
    const found = check.differences(
      disturbed,
      outcome(changed.history ?? history, changed.adapterHash ?? "bits"),
      expected,
    );
    return (found as string[]).join("; ");
  }

  it("finds nothing where nothing differs", async () => {
    expect(await compare()).toBe("");
  });

  it("finds a step that was lost, repeated, or executed out of order", async () => {
    expect(await compare({ history: history.slice(1) })).toContain("did 1 operations instead of 2");
    expect(await compare({ history: [...history, history[1]!] })).toContain("did 3 operations instead of 2");
    expect(await compare({ history: [...history].reverse() })).toContain(
      "operation 0 was optimStep b instead of",
    );
  });

  it("finds a call that failed, never ended, or took effect after its answer", async () => {
    const [first, second] = run.operations as [object, object];
    expect(await compare({ operations: [first, { ...second, type: "fail", error: "E" }] })).toContain(
      '"fail": E',
    );
    expect(await compare({ operations: [first, { ...second, type: "info", end: null }] })).toContain(
      'ended as "info"',
    );
    const late = [history[0]!, event("optimStep", "b", 3e9)];
    expect(await compare({ history: late })).toContain("outside of its call");
  });

  it("finds other bits, a sample that ran twice, and what was left open", async () => {
    expect(await compare({ adapterHash: "other bits" })).toContain("not bit for bit");
    const sample = { ...event("sample", "s", 1), adapterId: "session:sample:0:5" };
    expect(await compare({ history: [...history, sample, sample] })).toContain(
      "sample sample:0:5 ran 2 times",
    );
    expect(await compare({ history: [...history, { ...sample, isCancelled: true }, sample] })).toBe(
      "1 samples ran instead of 0",
    );
    expect(await compare({ leftovers: ["2 connections were left open"] })).toContain("left open");
  });
});

describe("the comparison of a recording with what agents read", () => {
  const turn = { messageCount: 1, tokens: [5, 6], isRepeated: false };
  const session = {
    id: "a",
    threads: [{ turns: [turn], messages: [{ content: "?" }, { content: "Yes." }] }],
  };
  const datum = { lossFnInputs: { weights: [0, 1, 1], logprobs: [0, -0.5, -0.25] } };
  const whole = {
    received: [{ session: "a", message: 1, content: "Yes." }],
    sessions: [session],
    datums: [datum],
    computed: [[-9, -0.5, -0.25]],
  };
  async function differences(changed: Partial<typeof whole> = {}): Promise<string> {
    const check = await import(new URL("./gateway/check.mjs", import.meta.url).href);
    return (check.recordingDifferences({ ...whole, ...changed }) as string[]).join("; ");
  }

  it("finds nothing where nothing is missing", async () => {
    expect(await differences()).toBe("");
  });

  it("finds a lost answer, tokens that are trained twice or not at all, and tokens that were sampled elsewhere", async () => {
    const other = { session: "a", message: 1, content: "No." };
    expect(await differences({ received: [other] })).toContain("message 1 is not recorded");
    expect(
      await differences({ datums: [datum, datum], computed: [...whole.computed, [0, -0.5, -0.25]] }),
    ).toBe("4 tokens are trained, and 2 were sampled and kept");
    expect(await differences({ datums: [], computed: [] })).toContain("nothing is trained");
    expect(await differences({ computed: [[-9, -0.6, -0.25]] })).toContain("1 trained tokens have another");
  });
});
