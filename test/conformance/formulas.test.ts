import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { datumFromExample } from "../../src/cookbook/data/examples.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { ModelInput, type ModelInputChunk } from "../../src/wire/index.js";
import { explainSkip, hasPythonModule, Judge } from "./judge.js";
import { Random, wellFormedText } from "./random.js";
import type { Outcome } from "./renderer-operations.js";
import { writeReport } from "./report.js";

explainSkip("formulas.test.ts");

const SEED = Number(process.env["TINKERTS_SEED"] ?? 1);
const CASES = Number(process.env["TINKERTS_CASES"] ?? 1000);

type Chunk = { readonly tokens: number[] } | { readonly length: number };

describe.skipIf(!hasPythonModule("tinker_cookbook", "formulas.test.ts"))(
  "formulas, judged by the Python cookbook",
  () => {
    let judge: Judge;
    const counts: Record<string, number> = {};
    beforeAll(() => {
      judge = new Judge("renderers.py");
    });
    afterAll(async () => {
      writeReport("formulas", counts);
      await judge?.[Symbol.asyncDispose]();
    });

    const random = () => new Random(SEED);
    async function calculate(
      formula: string,
      cases: readonly unknown[],
      tokenizer?: string,
    ): Promise<Outcome[]> {
      counts[formula] = (counts[formula] ?? 0) + cases.length;
      return judge.ask("formula", { formula, cases, ...(tokenizer !== undefined && { tokenizer }) });
    }

    it("makes the same datums of examples, cut or whole", async () => {
      const cases = random().times(CASES, (each) => {
        const chunks = each.times(
          each.integer(1, 4),
          (some): Chunk =>
            some.chance(0.2)
              ? { length: some.integer(1, 5) }
              : { tokens: some.times(some.integer(0, 6), (one) => one.integer(0, 99)) },
        );
        const length = chunks.reduce((sum, chunk) => sum + lengthOf(chunk), 0);
        return {
          chunks,
          // Sums of these are exact, in whatever order they are added.
          weights: each.times(length, (one) => one.pick([0, 0, 1, 1, 0.5, 2])),
          ...(each.chance(0.6) && { max_length: each.integer(2, 16) }),
          reduction: each.pick(["none", "mean"] as const),
        };
      });
      const theirs = await calculate("datum", cases);
      let made = 0;
      for (const [index, { chunks, weights, max_length: maxLength, reduction }] of cases.entries()) {
        const input = ModelInput.from(chunks.map(modelChunk));
        const datum = datumFromExample(
          { input, weights: Float32Array.from(weights) },
          { maxLength, reduction },
        );
        const expected = theirs[index]!.ok as { weights: number[] } | undefined;
        // Python makes one of which nothing is learnt, or fails where not even two tokens are left.
        if (expected === undefined || expected.weights.every((weight) => weight === 0)) {
          expect(datum, JSON.stringify(cases[index])).toBeUndefined();
          continue;
        }
        made++;
        expect({
          chunks: datum!.modelInput.chunks.map(plainChunk),
          targets: [...datum!.lossFnInputs["targetTokens"]!.data].map(Number),
          weights: [...datum!.lossFnInputs["weights"]!.data],
        }).toEqual(expected);
      }
      expect(made).toBeGreaterThan(CASES / 3);
    });

    it("reads and writes the same lines of checkpoints", async () => {
      const folder = await mkdtemp(join(tmpdir(), "tinkerts-records-"));
      const file = join(folder, "checkpoints.jsonl");
      const records = random().times(60, (each) => ({
        name: `${each.integer(0, 999)}`.padStart(6, "0"),
        ...(each.chance(0.7) && { batch: each.integer(0, 1000) }),
        ...(each.chance(0.5) && { epoch: each.integer(0, 9) }),
        ...(each.chance(0.2) && { final: each.chance(0.5) }),
        ...(each.chance(0.7) && { statePath: `tinker://${wellFormedText(each)}/weights/1` }),
        ...(each.chance(0.5) && { samplerPath: "tinker://run/sampler_weights/1" }),
        ...(each.chance(0.4) && {
          extra: { step: each.integer(0, 9), note: wellFormedText(each), list: [1.5, null] },
        }),
      }));
      try {
        {
          await using log = await RunLog.open(folder);
          for (const record of records) await log.logCheckpoint(record);
        }
        const written = await readFile(file, "utf8");
        const [answer] = await calculate("checkpoints", [[[written]]]);
        const python = answer!.ok as { records: Record<string, unknown>[]; lines: string[]; last: string };
        expect(python.records).toEqual(
          records.map(({ name, batch, epoch, final, statePath, samplerPath, extra }) => ({
            name,
            batch: batch ?? null,
            epoch: epoch ?? null,
            final: final ?? null,
            state_path: statePath ?? null,
            sampler_path: samplerPath ?? null,
            extra: extra ?? {},
          })),
        );
        expect(python.lines.map((line) => JSON.parse(line))).toEqual(
          written
            .trimEnd()
            .split("\n")
            .map((line) => JSON.parse(line)),
        );
        await writeFile(file, python.lines.join(""));
        await using log = await RunLog.open(folder);
        expect(log.checkpoints.map((record) => JSON.parse(JSON.stringify(record)))).toEqual(records);
        expect(python.last).toBe(records.findLast(({ statePath }) => statePath !== undefined)!.name);
      } finally {
        await rm(folder, { recursive: true });
      }
    });
  },
);

const lengthOf = (chunk: Chunk): number => ("tokens" in chunk ? chunk.tokens.length : chunk.length);

function modelChunk(chunk: Chunk): ModelInputChunk {
  return "tokens" in chunk
    ? { type: "encoded_text", tokens: Int32Array.from(chunk.tokens) }
    : { type: "image", data: Uint8Array.of(1), format: "jpeg", expectedTokens: chunk.length };
}

function plainChunk(chunk: ModelInputChunk): Chunk {
  return chunk.type === "encoded_text"
    ? { tokens: [...chunk.tokens].map(Number) }
    : { length: "expectedTokens" in chunk ? (chunk.expectedTokens ?? 0) : 0 };
}
