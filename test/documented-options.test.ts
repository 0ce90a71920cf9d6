import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { createTinkerts, datumsFromSteps, tinkertsModel } from "../src/ai-sdk/index.js";
import { downloadCheckpoint, exportModel, mergeAdapter, pushToHub } from "../src/checkpoints/index.js";
import { SamplingClient } from "../src/clients/sampling/sampling-client.js";
import { TrainingClient } from "../src/clients/training/training-client.js";
import * as cookbook from "../src/cookbook/index.js";
import { ValidationError } from "../src/errors.js";
import { startCapture, startGateway } from "../src/gateway/index.js";
import { APIFuture, Datum, ModelInput, RestClient, ServiceClient, TensorData } from "../src/index.js";
import { startLocalBackend } from "../src/local/index.js";
import { importFromFolder } from "../src/local/server/checkpoints/import.js";
import { getRenderer, templateRenderer } from "../src/renderers/index.js";
import { loadTokenizer } from "../src/tokenizers/index.js";
import { sum } from "../src/training/autograd/index.js";
import { consistency, entropy, klToReference, l2, runWithRecovery } from "../src/training/index.js";
import { RunLog } from "../src/training/run-log.node.js";

const docs = [
  "ai-sdk",
  "autograd",
  "checkpoints",
  "gateway",
  "local",
  "renderers",
  "run-log",
  "tinkerts",
  "tokenizers",
  "training",
]
  .map((page) => readFileSync(new URL(`../docs/api/${page}.md`, import.meta.url), "utf8"))
  .join("\n");

/** The fields of a documented interface with their comments, and those of the interfaces that it extends. */
function documented(name: string): Map<string, string> {
  const found = new RegExp(`^interface ${name}(?:<.*?>)?(?: extends (.*))? \\{$([\\s\\S]*?)^\\}$`, "m").exec(
    docs,
  );
  if (found === null) throw new Error(`docs/api has no interface ${name}`);
  const [, parents = "", body = ""] = found;
  const fields = new Map<string, string>();
  for (const parent of parents.split(", ").filter(Boolean)) {
    const inner = /^(?:Partial<)?(\w+)/.exec(parent)![1]!;
    for (const [field, comment] of documented(inner)) fields.set(field, comment);
  }
  const comment = String.raw`(?:^ {2}/\*\*(?<comment>(?:(?!\*/)[\s\S])*)\*/\n)?`;
  for (const { groups } of body.matchAll(
    new RegExp(`${comment}^ {2}(?:readonly )?(?<field>\\w+)\\??: `, "gm"),
  ))
    fields.set(groups!["field"]!, groups!["comment"] ?? "");
  return fields;
}

const service = new ServiceClient({ baseURL: "http://127.0.0.1:1", apiKey: "tml-x" });
const rest = new RestClient({ baseURL: "http://127.0.0.1:1", apiKey: "tml-x" });
const context = {
  session: { config: { sampleMaxConcurrentRequests: 1 } },
  http: {},
  clock: {},
  logger: {},
} as never;
const training = new TrainingClient(context, "model");
const sampler = new SamplingClient(context, "sampler");
const path = "tinker://run/weights/name";
const data = [{ modelInput: [1], lossFnInputs: { targetTokens: [2], weights: [1] } }];
const tokenizer = await loadTokenizer("tinkerts/nano");
const messages = [{ role: "user", content: "Hello" }] as const;
const future = new APIFuture({ submitted: Promise.resolve("request"), result: Promise.resolve(1) });
const gateway = await startGateway({ listen: false });
const recovered = { service: () => {}, start: () => {}, step: () => {}, steps: 1 };

/** Every call with options: the documented interface, the call, and options that it cannot do without. */
const CALLS: [name: string, call: (options: never) => unknown, needed?: object][] = [
  ["ServiceClientOptions", (options) => new ServiceClient(options)],
  ["HttpClientOptions", (options) => new RestClient(options)],
  ["LoraTrainingOptions", (options) => service.createLoraTrainingClient(options), { baseModel: "m" }],
  ["FromStateOptions", (options) => service.createTrainingClientFromState(path, options)],
  ["FromStateOptions", (options) => service.createTrainingClientFromStateWithOptimizer(path, options)],
  ["SamplingClientOptions", (options) => service.createSamplingClient(options), { baseModel: "m" }],
  ["SamplingClientOptions", (options) => training.createSamplingClient(path, options)],
  ["CurrentSamplerOptions", (options) => training.saveWeightsAndGetSamplingClient(options)],
  ["PassOptions", (options) => training.forward(data, "cross_entropy", options)],
  ["PassOptions", (options) => training.forwardBackward(data, "cross_entropy", options)],
  ["RequestOptions", (options) => training.forwardBackwardCustom(data, () => ({}) as never, options)],
  ["CreateCustomLossOptions", (options) => training.createCustomLoss(() => ({ loss: sum([1]) }), options)],
  ["RequestOptions", (options) => training.optimStep({}, options)],
  ["SaveStateOptions", (options) => training.saveState("name", options)],
  ["SaveOptions", (options) => training.saveWeightsForSampler("name", options)],
  ["RequestOptions", (options) => training.saveWeightsExternal("name", options)],
  ["LoadStateOptions", (options) => training.loadState(path, options)],
  ["LoadStateOptions", (options) => training.loadStateWithOptimizer(path, options)],
  ["RequestOptions", (options) => training.getInfo(options)],
  ["RequestOptions", (options) => training.unloadModel(options)],
  ["RequestOptions", (options) => sampler.sample({ prompt: [1] }, options)],
  ["RequestOptions", (options) => sampler.stream({ prompt: [1] }, options)],
  ["RequestOptions", (options) => sampler.computeLogprobs([1], options)],
  ["SampleArguments", (options) => sampler.sample(options), { prompt: [1] }],
  ["StreamArguments", (options) => sampler.stream(options), { prompt: [1] }],
  ["ListOptions", (options) => rest.listUserCheckpoints(options)],
  ["CopyWeightsOptions", (options) => rest.copyWeights(path, options), { destinationProjectId: "p" }],
  ["AccessOptions", (options) => rest.listTrainingRuns(options)],
  ["AccessOptions", (options) => rest.getTrainingRun("run", options)],
  ["RequestOptions", (options) => rest.getWeightsInfo(path, options)],
  ["RequestOptions", (options) => rest.get("/api/v1/thing", options)],
  ["LoadTokenizerOptions", (options) => loadTokenizer("no/model", options)],
  ["LoadTokenizerOptions", (options) => rest.getTokenizer("tinkerts/nano", options)],
  ["DownloadOptions", (options) => downloadCheckpoint(rest, path, options)],
  ["MergeOptions", (options) => mergeAdapter("no", "no", "no", options)],
  ["ExportOptions", (options) => exportModel(options), { to: "gguf", output: "no/such/file" }],
  ["ImportAdapterOptions", (options) => importFromFolder({} as never, "no", options, {} as never)],
  ["PushOptions", (options) => pushToHub(rest, path, options)],
  ["TokenOptions", (options) => entropy(options)],
  ["EntropyOptions", (options) => entropy(options)],
  ["KlOptions", (options) => klToReference(options), { reference: "reference" }],
  ["ConsistencyOptions", (options) => consistency(options), { reference: "reference" }],
  ["NormOptions", (options) => l2(options)],
  ["RunWithRecoveryOptions", (options) => runWithRecovery(options), recovered],
  ["DatumsFromStepsOptions", (options) => datumsFromSteps([{}], options), { advantage: 1 }],
  ["TinkertsModelOptions", (options) => tinkertsModel(sampler, options)],
  ["ModelSettings", (options) => createTinkerts({ service })("m", options)],
  ["LocalBackendOptions", (options) => startLocalBackend(options)],
  ["GatewayOptions", (options) => startGateway(options)],
  ["SessionOptions", (options) => gateway.session(options)],
  ["CaptureOptions", (options) => startCapture(options), { folder: "no/such/folder" }],
  ["RunLogOptions", (options) => RunLog.open("no/such/folder", options)],
  ["ResultOptions", (options) => future.result(options)],
  ["TensorFromOptions", (options) => TensorData.from([1], options)],
  ["TensorFromOptions", (options) => TensorData.sparse([[1]], options)],
  ["ReduceOptions", (options) => sum([1], options)],
  ["EncodeOptions", (options) => tokenizer.encode("a", options)],
  ["EncodeOptions", (options) => tokenizer.encodeBatch(["a"], options)],
  ["DecodeOptions", (options) => tokenizer.decode([97], options)],
  ["DecodeOptions", (options) => tokenizer.decodeStream(options)],
  ["ChatTemplateOptions", (options) => tokenizer.applyChatTemplate(messages, options)],
  ["RendererOptions", (options) => getRenderer("qwen3", tokenizer, options)],
  ["TemplateRendererOptions", (options) => templateRenderer(tokenizer, options)],
  ["PromptOptions", (options) => getRenderer("role_colon", tokenizer).buildPrompt(messages, options)],
];

/** Documented, and not what a call of ours takes. */
const NO_OPTIONS: Readonly<Record<string, string>> = {
  AdapterSettings: "what a folder says about its adapter",
  AttachOptions: "part of a sampler's handle",
  CallOptions: "what the AI SDK gives a model",
};

async function errorOf(call: () => unknown): Promise<unknown> {
  try {
    await call();
  } catch (error) {
    return error;
  }
  return undefined;
}

/** Options that take anything, or are checked by another part of the call. */
const FREE = new Set(["engine", "config", "renderer", "body", "problem"]);

it("covers every documented interface of options", () => {
  const all = [...docs.matchAll(/^interface (\w+(?:Options|Settings|Arguments))\b/gm)].map(
    ([, name]) => name!,
  );
  const walked = new Set(
    CALLS.flatMap(([name]) => {
      const parents = new RegExp(`^interface ${name}\\b.* extends (.*) \\{$`, "m").exec(docs)?.[1] ?? "";
      return [name, ...parents.split(", ")];
    }),
  );
  expect(all.filter((name) => !walked.has(name) && !Object.hasOwn(NO_OPTIONS, name))).toEqual([]);
});

describe.each(CALLS)("the options of %s", (name, call, needed = {}) => {
  const fields = documented(name);

  it("are refused by name when they have a wrong type", async () => {
    for (const field of fields.keys()) {
      if (FREE.has(field)) continue;
      const error = await errorOf(() => call({ ...needed, [field]: Symbol(field) } as never));
      expect(error, field).toBeInstanceOf(ValidationError);
      expect(String(error), field).toMatch(new RegExp(`${field} (must be|is not)`));
    }
  });

  it("are suggested where they are misspelt", async () => {
    for (const field of fields.keys()) {
      if (field.length < 6) continue;
      const misspelt = `${field.slice(0, -2)}${field.at(-1)}${field.at(-2)}`;
      if (misspelt === field) continue;
      const error = await errorOf(() => call({ ...needed, [misspelt]: 1 } as never));
      expect(String(error), field).toMatch(new RegExp(`unknown field ${misspelt}; did you mean \\w+\\?`));
    }
  });
});

const example = { input: ModelInput.fromInts([1, 2]), weights: Float32Array.of(0, 1) };
const renderer = getRenderer("role_colon", tokenizer);
const rows = { length: 2, read: async () => [] };
const comparison = { prompt: [...messages], completionA: [], completionB: [], label: "A" } as const;
const datum = new Datum(data[0]!);
const source = { group: () => undefined };
const chatMessages = [...messages];

/** Every function of the cookbook with an object of options, and a call of it. */
const COOKBOOK_CALLS: Readonly<Record<string, (options: never) => unknown>> = {
  batches: (options) => cookbook.batches(rows, options),
  chat: (options) => cookbook.chat(sampler, chatMessages, options),
  chatStream: (options) => cookbook.chatStream(sampler, chatMessages, options).next(),
  consoleLogger: cookbook.consoleLogger,
  conversations: (options) => cookbook.conversations([], options),
  datumFromExample: (options) => cookbook.datumFromExample(example, options),
  distillationDatum: (options) => cookbook.distillationDatum(datum, options),
  dpoLoss: cookbook.dpoLoss,
  environmentEvaluator: cookbook.environmentEvaluator,
  environmentGroups: cookbook.environmentGroups,
  evaluate: cookbook.evaluate,
  interleaveGroups: (options) => cookbook.interleaveGroups([{ source, weight: 1 }], options),
  ipoLoss: cookbook.ipoLoss,
  judge: cookbook.judge,
  klPenalty: cookbook.klPenalty,
  messageEnvironment: cookbook.messageEnvironment,
  minViableGroup: cookbook.minViableGroup,
  pairData: (options) => cookbook.pairData(comparison, renderer, options),
  planDpo: cookbook.planDpo,
  planOffPolicyDistillation: cookbook.planOffPolicyDistillation,
  planOnPolicyDistillation: cookbook.planOnPolicyDistillation,
  planPreferenceModel: cookbook.planPreferenceModel,
  planPromptDistillation: cookbook.planPromptDistillation,
  planReinforcement: cookbook.planReinforcement,
  planRlhf: cookbook.planRlhf,
  planSelfDistillation: cookbook.planSelfDistillation,
  planSupervised: cookbook.planSupervised,
  questions: (options) => cookbook.questions([], options),
  preferenceModel: (options) => cookbook.preferenceModel(sampler, options),
  problemGroups: cookbook.problemGroups,
  retryOnFailure: cookbook.retryOnFailure,
  RolloutPool: (options) => new cookbook.RolloutPool(options),
  rulerReward: (options) => cookbook.rulerReward(sampler, options),
  runRollout: (options) => cookbook.runRollout({} as never, {} as never, options),
  runRolloutGroup: (options) => cookbook.runRolloutGroup({} as never, {} as never, options),
  samplerPolicy: (options) => cookbook.samplerPolicy(sampler, options),
  simpoLoss: cookbook.simpoLoss,
  split: (options) => cookbook.split(rows as never, options),
  sweep: cookbook.sweep,
  taskEvaluator: cookbook.taskEvaluator,
  teacherPenalty: cookbook.teacherPenalty,
  tool: cookbook.tool as (options: never) => unknown,
  toolEnvironment: cookbook.toolEnvironment,
  tournament: cookbook.tournament,
  tournamentRewards: cookbook.tournamentRewards,
  trainDpo: cookbook.trainDpo,
  trainOffPolicyDistillation: cookbook.trainOffPolicyDistillation,
  trainOnPolicyDistillation: cookbook.trainOnPolicyDistillation,
  trainPreferenceModel: cookbook.trainPreferenceModel,
  trainPromptDistillation: cookbook.trainPromptDistillation,
  trainReinforcement: cookbook.trainReinforcement,
  trainRlhf: cookbook.trainRlhf,
  trainSelfDistillation: cookbook.trainSelfDistillation,
  trainSupervised: cookbook.trainSupervised,
  winRateEvaluator: cookbook.winRateEvaluator,
  withReference: (options) => cookbook.withReference([], {} as never, options),
};

/** Functions of the cookbook that take no options. */
const WITHOUT_OPTIONS = [
  "agentic",
  "assembleData",
  "bothWays",
  "choiceMatch",
  "comparisons",
  "dropConstantGroups",
  "exactMatch",
  "failFast",
  "groupAdvantages",
  "interleave",
  "isContextOverflow",
  "klSampleTrain",
  "mcpTools",
  "numberMatch",
  "policyLoss",
  "postKl",
  "recommendedLearningRate",
  "reverseKlLoss",
  "rolloutRecords",
  "tensorBoardLogger",
  "totalRewards",
  "trajectoryMetrics",
];

it("covers every function of the cookbook", () => {
  const functions = Object.entries(cookbook).filter(([, value]) => typeof value === "function");
  expect(functions.map(([name]) => name).sort()).toEqual(
    [...Object.keys(COOKBOOK_CALLS), ...WITHOUT_OPTIONS].sort(),
  );
});

it.each(Object.entries(COOKBOOK_CALLS))("%s refuses an option that it does not have", async (_, call) => {
  const error = await errorOf(() => call({ noSuchOption: 1 } as never));
  expect(error).toBeInstanceOf(ValidationError);
  expect(String(error)).toMatch(/unknown field noSuchOption/);
});
