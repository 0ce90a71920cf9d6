import * as f from "../../wire/fields/index.js";
import { addModels, addTokens, exactly, NO_TOKENS, type TokensByModel } from "../costs/index.js";
import { type Conversation, type ConversationSource, interleave } from "../data/index.js";
import { mapRows } from "../data/rows.js";
import { preparationSignal } from "../runs/find-model.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { crossEntropyStep } from "../supervised/cross-entropy-step.js";
import { heldOutLikelihood, scoredTokens } from "../supervised/held-out.js";
import { meanNll, type ScoredTokens, type TrainSupervisedOptions } from "../supervised/index.js";
import { SUPERVISED_OPTIONS } from "../supervised/options.js";
import { type PreparedRun, prepareRun } from "../supervised/prepare-run.js";
import type { DataSize } from "../supervised/training-data.js";
import {
  DOMAIN_OPTIONS,
  type Domain,
  describeTeachers,
  divergenceMetrics,
  domainOptions,
  domainsConfig,
  domainsOf,
  type NamedDomain,
  type OneOrMoreDomains,
  openTeachers,
  type Teachers,
} from "./domains.js";
import { distillationDatum } from "./soft-targets.js";
import { baseModelOfTeacher } from "./teacher.js";

/** Conversations, and the teacher that predicts their tokens. */
export interface ConversationDomain extends Domain {
  readonly data: ConversationSource;
  /** Share of its rows, relative to the weights of the other domains; either all domains have a weight or none has. */
  readonly weight?: number | undefined;
}

/**
 * Options of `trainOffPolicyDistillation`: `data` and its `teacher`, or several as `domains`. The other options are
 * those of `trainSupervised`, but a step has 64 rows and each token has the same weight.
 */
export type OffPolicyDistillationOptions = Omit<TrainSupervisedOptions, "data"> &
  OneOrMoreDomains<ConversationDomain> & {
    /** Number of the teacher's likeliest tokens to train on at each position. Default: 20. */
    readonly topk?: number | undefined;
  };

const { data: _data, ...REST } = SUPERVISED_OPTIONS.fields;
const DOMAIN = f.message({
  ...DOMAIN_OPTIONS,
  data: SUPERVISED_OPTIONS.fields.data,
  weight: f.option(
    f.optional(f.positive),
    "how often its rows come, against the weights of the other domains",
  ),
} satisfies f.OptionsOf<ConversationDomain>);

/** The option table of `trainOffPolicyDistillation`. */
export const OFF_POLICY_OPTIONS = f.optionTable({
  ...REST,
  ...domainOptions(DOMAIN.shape),
  batchSize: f.defaulting(REST.batchSize, 64),
  reduction: f.defaulting(REST.reduction, "sum"),
  topk: f.option(
    f.withDefault(f.positiveInteger, 20),
    "likeliest tokens of the teacher that are trained on",
    { flag: true, config: "n_teacher_targets" },
  ),
} satisfies f.OptionNamesOf<OffPolicyDistillationOptions>);

/**
 * Trains a student on the teacher's likeliest tokens at each position of given answers, with their probabilities as
 * soft targets, instead of the tokens in the data. Measures `teacher_kl`, the KL from the teacher to the student over
 * these tokens.
 */
export async function trainOffPolicyDistillation(
  options: OffPolicyDistillationOptions,
): Promise<FinishedRun> {
  await using run = await prepareOffPolicy(options);
  const { prepared, domains, teachers, domainOf, topk, config, description } = run;
  const { settings, data: rows, renderer } = prepared;
  return await runTraining({
    options,
    settings,
    config,
    description,
    estimate: prepared.estimate,
    heldOut: heldOutLikelihood(rows.test, renderer.tokenizer),
    step: crossEntropyStep(settings, async (step, signal) => {
      const taught = await Promise.all(
        (await rows.rows(step)).flatMap(({ row: conversation, data }) => {
          const domain = domainOf(conversation);
          const teacher = teachers.teachers[domain]!;
          return data.map(async (datum) => ({
            name: domains[domain]!.name,
            ...(await distillationDatum(datum, { teacher, topk, signal })),
          }));
        }),
      );
      const data = taught.map(({ datum }) => datum);
      return {
        data,
        measure: (output) => {
          const scored = scoredTokens(data, output);
          const sums = taught.map(({ name, entropy, weight }, index) => ({
            name,
            divergence: crossEntropy(scored[index]!) - entropy,
            weight,
          }));
          const positions = taught.reduce((sum, each) => sum + each.positions, 0);
          return { num_loss_tokens: positions, train_mean_nll: meanNll(scored), ...divergenceMetrics(sums) };
        },
      };
    }),
  });
}

/** Decides every setting and finds the teachers, without training anything. */
export async function planOffPolicyDistillation(options: OffPolicyDistillationOptions): Promise<RunPlan> {
  await using run = await prepareOffPolicy(options);
  const { config, description, prepared } = run;
  return { config, description, estimate: prepared.estimate };
}

interface OffPolicyRun extends RunPlan, AsyncDisposable {
  readonly prepared: PreparedRun;
  readonly domains: readonly NamedDomain<ConversationDomain>[];
  readonly teachers: Teachers;
  readonly domainOf: (conversation: Conversation) => number;
  readonly topk: number;
}

async function prepareOffPolicy(options: OffPolicyDistillationOptions): Promise<OffPolicyRun> {
  const checked = OFF_POLICY_OPTIONS.check(options, "trainOffPolicyDistillation");
  const { domains: _, teacher, name, weight, topk, ...supervised } = checked;
  const domains = domainsOf<ConversationDomain>(options, DOMAIN);
  const { source, domainOf } = mixedDomains(domains);
  const otherTokens = await teacherTokens(options.service, domains, preparationSignal(options));
  const prepared = await prepareRun({ ...supervised, data: source }, { otherTokens });
  const closeRows = () => prepared.data[Symbol.asyncDispose]();
  try {
    const { renderer, settings } = prepared;
    const student = {
      renderer,
      rendererName: settings.rendererName,
      isOwn: typeof options.renderer === "object",
    };
    const teachers = await openTeachers(options.service, domains, student, preparationSignal(options));
    return {
      prepared,
      domains,
      teachers,
      domainOf,
      topk,
      config: {
        ...prepared.config,
        ...f.keptOptions({ topk: OFF_POLICY_OPTIONS.fields.topk }, { topk }),
        domains: domainsConfig(domains, teachers).map((each, index) => ({
          ...each,
          weight: domains[index]!.weight ?? null,
        })),
      },
      description: `${prepared.description}\nteacher   ${describeTeachers(domains, teachers)}: its ${topk} likeliest tokens`,
      [Symbol.asyncDispose]: async () => {
        await Promise.all([closeRows(), teachers[Symbol.asyncDispose]()]);
      },
    };
  } catch (error) {
    await closeRows();
    throw error;
  }
}

/** The tokens that the teachers read: each sequence once, with the last target, for one sampled token. */
async function teacherTokens(
  service: OffPolicyDistillationOptions["service"],
  domains: readonly ConversationDomain[],
  signal: AbortSignal,
) {
  const models = await Promise.all(
    domains.map(({ teacher }) => baseModelOfTeacher(service, teacher, signal)),
  );
  const isMixed = new Set(models).size > 1;
  return ({ tokens, datums }: DataSize) => {
    const share = { prefill: (tokens + datums) / models.length, sample: datums / models.length };
    const read = models.map((model) => new Map([[model, addTokens(NO_TOKENS, share)]]));
    return exactly(
      read.reduce<TokensByModel>(addModels, new Map()),
      isMixed ? ["the teachers read equal shares"] : [],
    );
  };
}

/** All conversations as one source, and the domain that each comes from. */
function mixedDomains(domains: readonly ConversationDomain[]) {
  const domainOf = new WeakMap<Conversation, number>();
  const sources = domains.map(({ data, weight }, domain) => ({
    weight,
    source: {
      open: async () =>
        mapRows(await data.open(), (conversation) => {
          const own = { ...conversation };
          domainOf.set(own, domain);
          return own;
        }),
    },
  }));
  return {
    source: interleave(sources),
    domainOf: (conversation: Conversation) => domainOf.get(conversation)!,
  };
}

function crossEntropy({ logprobs, weights }: ScoredTokens): number {
  let sum = 0;
  for (let index = 0; index < weights.length; index += 1)
    if (weights[index] !== 0) sum -= weights[index]! * logprobs[index]!;
  return sum;
}
