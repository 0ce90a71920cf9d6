import type { TrainingClient } from "../../clients/index.js";
import { logprobVariables } from "../../training/custom-loss.js";
import type { Datum } from "../../wire/index.js";
import type { MeasureWeights } from "../runs/evaluation.js";
import type { TrainingSpec } from "../runs/run-training.js";
import { passStep } from "../supervised/cross-entropy-step.js";
import type { PreparedRows } from "../supervised/prepare-run.js";
import type { LabeledComparison } from "./comparison.js";
import type { PairLoss } from "./pair-losses.js";
import { type ReferenceState, StartingWeights } from "./reference.js";

/** The steps of a DPO run and its evaluations. */
export class DpoTraining {
  readonly #rows: PreparedRows<LabeledComparison>;
  readonly #loss: PairLoss;
  readonly #reference = new StartingWeights();
  /** Scored by the reference while the previous step is trained. */
  #next: { readonly step: number; readonly data: Promise<readonly Datum[]> } | undefined;
  #test: Promise<readonly Datum[]> | undefined;
  /** Set when the first step begins. */
  referencePath: string | undefined;
  readonly step: TrainingSpec<ReferenceState>["step"];
  /** Undefined if no pairs are held out. */
  readonly heldOut: MeasureWeights<ReferenceState> | undefined;

  constructor(rows: PreparedRows<LabeledComparison>, loss: PairLoss) {
    this.#rows = rows;
    this.#loss = loss;
    this.step = passStep(rows.settings, this.#prepare);
    this.heldOut = rows.data.test.length === 0 ? undefined : this.#measure;
  }

  readonly #prepare: Parameters<typeof passStep<ReferenceState>>[1] = async (training, step, context) => {
    const { signal, keepState } = context;
    const state = { referencePath: await this.#reference.path(training, context.state, signal) };
    keepState(state);
    this.referencePath = state.referencePath;
    const data = await this.#batch(training, step, state, signal);
    if (step + 1 < this.#rows.settings.steps) this.#batch(training, step + 1, state, signal).catch(() => {});
    return {
      data,
      send: () => training.forwardBackwardCustom(data, this.#loss, { signal }),
      measure: ({ metrics }, numTokens) => ({
        loss: metrics["dpo_loss"]!,
        metrics: { num_tokens: numTokens, ...lossMetrics(metrics) },
      }),
    };
  };

  readonly #measure: MeasureWeights<ReferenceState> = async (training, signal, state) => {
    const { test } = this.#rows.data;
    const pass = training.forward(test, "cross_entropy", { signal });
    this.#test ??= this.#reference.score(test, training, state, signal);
    this.#test.catch(() => {
      this.#test = undefined;
    });
    const [output, data] = await Promise.all([pass, this.#test]);
    const { metrics = {} } = this.#loss(data, logprobVariables(data, output));
    return Object.fromEntries(
      Object.entries(metrics)
        .filter(([name]) => !name.startsWith("num_"))
        .map(([name, value]) => [`test/${name}`, typeof value === "number" ? value : value.item()]),
    );
  };

  #batch(
    training: TrainingClient,
    step: number,
    state: ReferenceState,
    signal: AbortSignal,
  ): Promise<readonly Datum[]> {
    if (this.#next?.step === step) return this.#next.data;
    const make = async () => {
      const rows = await this.#rows.data.rows(step);
      const data = rows.flatMap((row) => row.data);
      return this.#reference.score(data, training, state, signal);
    };
    const next = { step, data: make() };
    this.#next = next;
    next.data.catch(() => {
      if (this.#next === next) this.#next = undefined;
    });
    return next.data;
  }
}

/** Without the server's metrics, which are of another loss. */
function lossMetrics(metrics: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(metrics).filter(([name]) => !name.includes(":")));
}
