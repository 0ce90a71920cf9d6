import { checkObject } from "../../wire/index.js";
import { type Conversation, type ConversationSource, interleave } from "../data/index.js";
import { mapRows } from "../data/rows.js";
import { preparationSignal } from "../runs/find-model.js";
import { checkCount } from "../runs/options.js";
import { type FinishedRun, type RunPlan, runTraining } from "../runs/run-training.js";
import { crossEntropyStep } from "../supervised/cross-entropy-step.js";
import { heldOutLikelihood, scoredTokens } from "../supervised/held-out.js";
import { meanNll, type ScoredTokens, type TrainSupervisedOptions } from "../supervised/index.js";
import { checkConversations } from "../supervised/options.js";
import { type PreparedRun, prepareRun } from "../supervised/prepare-run.js";
import {
  type Domain,
  describeTeachers,
  divergenceMetrics,
  domainsConfig,
  domainsOf,
  type NamedDomain,
  type OneOrSeveral,
  openTeachers,
  type Teachers,
} from "./domains.js";
import { taughtDatum } from "./soft-targets.js";

/** Conversations, and who says what comes next in them. */
export interface TaughtConversations extends Domain {
  readonly data: ConversationSource;
  /** How often its rows come, against the weights of the other domains: all have one, or none has. */
  readonly weight?: number | undefined;
}

/**
 * What `trainOffPolicyDistillation` needs: `data` and its `teacher`, or several of them as `domains`. Everything else is
 * as for `trainSupervised`, but that a step has 64 rows and each token counts the same.
 */
export type OffPolicyDistillationOptions = Omit<TrainSupervisedOptions, "data"> &
  OneOrSeveral<TaughtConversations> & {
    /** How many of the teacher's likeliest tokens are learnt at each position. Default: 20. */
    readonly topk?: number | undefined;
  };

const DOMAIN_KEYS = ["data", "teacher", "name", "weight"] satisfies (keyof TaughtConversations)[];
const DEFAULT_TOPK = 20;
const DEFAULT_BATCH_SIZE = 64;

/**
 * Teaches a student what its teacher would say at each token of given answers, instead of what stands there: the
 * teacher's likeliest tokens with their probabilities are the targets. Measures `teacher_kl`, the KL of the student from
 * the teacher over these.
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
    heldOut: heldOutLikelihood(rows.test, renderer.tokenizer),
    step: crossEntropyStep(settings, async (step, signal) => {
      const taught = await Promise.all(
        (await rows.rows(step)).flatMap(({ row: conversation, data }) => {
          const domain = domainOf(conversation);
          const teacher = teachers.teachers[domain]!;
          return data.map(async (datum) => ({
            name: domains[domain]!.name,
            ...(await taughtDatum(datum, { teacher, topk, signal })),
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
          return {
            num_loss_tokens: positions,
            train_mean_nll: meanNll(scored),
            ...divergenceMetrics(sums),
          };
        },
      };
    }),
  });
}

/** Decides every setting and finds the teachers, without training anything. */
export async function planOffPolicyDistillation(options: OffPolicyDistillationOptions): Promise<RunPlan> {
  await using run = await prepareOffPolicy(options);
  const { config, description } = run;
  return { config, description };
}

interface OffPolicyRun extends RunPlan, AsyncDisposable {
  readonly prepared: PreparedRun;
  readonly domains: readonly NamedDomain<TaughtConversations>[];
  readonly teachers: Teachers;
  readonly domainOf: (conversation: Conversation) => number;
  readonly topk: number;
}

async function prepareOffPolicy(options: OffPolicyDistillationOptions): Promise<OffPolicyRun> {
  checkObject(options, "the argument of trainOffPolicyDistillation");
  const { domains: _, teacher, name, weight, topk = DEFAULT_TOPK, ...supervised } = options;
  checkCount({ topk }, "topk", 1);
  const domains = domainsOf<TaughtConversations>(options, DOMAIN_KEYS, ({ data }, prefix) =>
    checkConversations(data, `${prefix}data`),
  );
  const { source, domainOf } = mixedDomains(domains);
  const prepared = await prepareRun({
    ...supervised,
    batchSize: supervised.batchSize ?? DEFAULT_BATCH_SIZE,
    reduction: supervised.reduction ?? "sum",
    data: source,
  });
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
        n_teacher_targets: topk,
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

/** All conversations as one source, and the place of the domain that each comes from. */
function mixedDomains(domains: readonly TaughtConversations[]) {
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
