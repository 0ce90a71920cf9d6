import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { batches, conversations, trainOffPolicyDistillation } from "../../src/cookbook/index.js";
import { datumFromAnswer, ServiceClient } from "../../src/index.js";
import { defaultModel } from "../../src/local/default-model.js";
import { RunLog } from "../../src/training/run-log.node.js";
import { silent } from "../local/raw-client.js";
import { explainSkip, hasPythonModule, lastLine, runPython } from "./judge.js";
import { startRecorder } from "./recorder.js";

explainSkip("same-distillation.test.ts");

const SETTINGS = { renderer: "qwen3_instruct", batchSize: 4, learningRate: 1e-3, topk: 5 } as const;

const rows = Array.from({ length: 12 }, (_, index) => ({
  messages: [
    { role: "user", content: `What is ${index} + ${(index * 7) % 10}?` },
    { role: "assistant", content: `It is ${index + ((index * 7) % 10)}.` },
  ],
}));

/** A server of its own with the same teacher and the same student, which the seed makes the same everywhere. */
async function freshBackend() {
  const recorder = await startRecorder({ logger: silent });
  const { apiKey } = recorder.backend;
  const service = new ServiceClient({ baseURL: recorder.baseURL, apiKey, logLevel: "off" });
  const train = (seed: number) =>
    service.createLoraTrainingClient({ baseModel: defaultModel.name, rank: 4, seed });
  const student = await (await train(3)).saveState("start");
  const taught = await train(4);
  await taught.forwardBackward([datumFromAnswer([5, 6, 7], [8, 9, 10, 11])], "cross_entropy");
  await taught.optimStep({ learningRate: 0.02 });
  const teacher = await taught.saveWeightsForSampler("teacher");
  return { recorder, service, apiKey, startFrom: student.path, teacher: teacher.path };
}

const TEACHER = "/asample";

/** What was asked of teacher and student, in the order in which it was. */
const asked = (paths: readonly string[]): readonly string[] =>
  paths.filter((path) => [TEACHER, "/forward_backward", "/optim_step"].includes(path));

/** For each pass, the questions to the teacher before it. */
const questionsBefore = (requests: readonly string[]): number[] =>
  requests.flatMap((path, at) =>
    path === "/forward_backward" ? [requests.slice(0, at).filter((each) => each === TEACHER).length] : [],
  );

interface Step {
  readonly [name: string]: number;
}

it.skipIf(!hasPythonModule("tinker_cookbook", "same-distillation.test.ts"))(
  "off-policy distillation asks the same in the same order, and has the same losses, from the Python cookbook and from ours",
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "tinkerts-same-distillation-"));
    const [first, second] = [await freshBackend(), await freshBackend()];
    try {
      const { renderer, ...shared } = SETTINGS;
      const before = [first, second].map(({ recorder }) => recorder.requests.length);
      await trainOffPolicyDistillation({
        ...shared,
        renderer,
        service: first.service,
        model: defaultModel.name,
        data: conversations(rows),
        teacher: first.teacher,
        startFrom: first.startFrom,
        schedule: "constant",
        testSize: 0,
        evaluateEvery: 0,
        folder: join(folder, "ours"),
        loggers: [],
      });
      await using log = await RunLog.open(join(folder, "ours"));
      const ours = (await log.readMetrics()) as unknown as readonly Step[];

      const order = batches(rows, { batchSize: SETTINGS.batchSize });
      const inOrder = Array.from({ length: order.stepsPerEpoch }, (_, step) =>
        order.indices(step).map((index) => rows[index]),
      );
      const { teacher, startFrom, apiKey, recorder } = second;
      const output = await runPython("off_policy.py", {
        baseURL: recorder.baseURL,
        apiKey,
        model: defaultModel.name,
        folder,
        env: { SETTINGS: JSON.stringify({ ...SETTINGS, batches: inOrder, teacher, startFrom }) },
      });
      const theirs = lastLine<Step[]>(output);
      expect(theirs).toHaveLength(order.stepsPerEpoch);
      for (const [step, line] of theirs.entries()) {
        const mine = ours[step]!;
        expect(mine["train_mean_nll"]! * mine["num_loss_tokens"]!, `step ${step}`).toBeCloseTo(
          line["train/loss:sum"]!,
          4,
        );
      }
      const [mine, python] = [first, second].map((each, index) =>
        asked(each.recorder.requests.slice(before[index]).map(({ path }) => path)),
      );
      // Python asks a teacher when a step is over, ours already while it is trained.
      const ofStudent = (requests: readonly string[]) => requests.filter((path) => path !== TEACHER);
      expect(ofStudent(mine!)).toEqual(ofStudent(python!));
      for (const [step, questions] of questionsBefore(python!).entries())
        expect(questionsBefore(mine!)[step]).toBeGreaterThanOrEqual(questions);
      expect(mine).toHaveLength(order.stepsPerEpoch * (SETTINGS.batchSize + 2));
    } finally {
      for (const { service, recorder } of [first, second]) {
        await service.close();
        await recorder[Symbol.asyncDispose]();
      }
      await rm(folder, { recursive: true });
    }
  },
);
