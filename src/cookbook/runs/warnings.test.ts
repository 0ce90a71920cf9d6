import { describe, expect, it } from "vitest";
import { RunWatch, type WatchedRun, warningMetric, warningText } from "./warnings.js";

const RUN: WatchedRun = { steps: 40, learningRate: 1e-4, recommendedRate: 1e-4, hasRewards: true };

/** The kinds of warnings of a run, by the step at which they come. */
function watched(lines: readonly Readonly<Record<string, number>>[], run: Partial<WatchedRun> = {}) {
  const watch = new RunWatch({ ...RUN, ...run });
  const all = [...watch.begin(), ...lines.flatMap((line, step) => watch.look(line, step))];
  return all.map(({ kind, step }) => [kind, step] as const);
}

const series = (metric: string, values: readonly number[]) => values.map((value) => ({ [metric]: value }));
const noisy = (value: number, step: number) => value * (1 + 0.3 * Math.sin(7 * step));

describe("the watch of a run", () => {
  it("is silent while losses fall with noise, and when a good run ends near nothing", () => {
    const falling = Array.from({ length: 40 }, (_, step) => noisy(3 * 0.93 ** step, step));
    expect(watched(series("train_mean_nll", falling))).toEqual([]);
    const flat = Array.from({ length: 40 }, (_, step) => noisy(0.69, step));
    expect(watched(series("dpo_loss", flat))).toEqual([]);
    const learned = Array.from({ length: 40 }, (_, step) => (step < 30 ? 1 : 1e-4));
    expect(watched(series("train_mean_nll", learned))).toEqual([]);
    // However long it is.
    const long = Array.from({ length: 1400 }, (_, step) => (step < 1000 ? 1 : 1e-4));
    expect(watched(series("train_mean_nll", long), { steps: 1400 })).toEqual([]);
  });

  it("goes on as if it had seen every step when it takes up the lines of an interrupted run", () => {
    const lines = Array.from({ length: 30 }, (_, step) => ({
      train_mean_nll: step < 12 ? noisy(1, step) : 1 + 0.4 * (step - 12),
      "grad_norm:mean": step === 20 ? 500 : noisy(2, step),
      "optim/kl_sample_train_v2": step >= 25 ? 1 : 0,
    }));
    const all = watched(lines);
    expect(all.map(([kind]) => kind).sort()).toEqual(["gradient_norm", "kl", "loss_rising"]);
    for (let from = 0; from <= lines.length; from += 1) {
      const counted = (step: number) => all.filter((each) => each[1] === step);
      const written = lines.slice(0, from).map((line, step) => ({
        ...line,
        ...Object.fromEntries(counted(step).map(([kind]) => [warningMetric(kind), 1])),
      }));
      const watch = new RunWatch(RUN);
      for (const line of written) watch.recall(line);
      const rest = lines.slice(from).flatMap((line, index) => watch.look(line, from + index));
      expect(rest.map(({ kind, step }) => [kind, step])).toEqual(all.filter(([, step]) => step >= from));
    }
  });

  it("warns of a rising loss once, and not of one bad batch", () => {
    expect(watched(series("train_mean_nll", [2, 1.5, 1.2, 9, 1, 1, 1, 1, 1]))).toEqual([]);
    const rising = [2, 1.5, 1.2, 1.1, 3, 5, 8, 13, 22, 22];
    expect(watched(series("train_mean_nll", rising))).toEqual([["loss_rising", 5]]);
  });

  it("warns of numbers that are none, with a proposal", () => {
    const watch = new RunWatch(RUN);
    const [warning, ...others] = watch.look({ train_mean_nll: Number.NaN, other: 1 }, 4);
    expect(others).toEqual([]);
    expect(warningText(warning!)).toBe(
      "Warning at step 5: train_mean_nll is NaN. Try a learning rate below 0.0001, or adam: { gradClipNorm: 1 }",
    );
    expect(watch.look({ train_mean_nll: Number.POSITIVE_INFINITY }, 5)).toEqual([]);
  });

  it("warns of a gradient norm that jumps, by either server's name", () => {
    const usual = Array.from({ length: 10 }, (_, step) => noisy(2, step));
    for (const metric of ["grad_norm:mean", "unclipped_grad_l2:mean"]) {
      expect(watched(series(metric, [...usual, 40]))).toEqual([]);
      expect(watched(series(metric, [...usual, 400]))).toEqual([["gradient_norm", 10]]);
    }
  });

  it("warns of a trainer far from the sampler, collapsed entropy, equal rewards and answers that are cut", () => {
    expect(watched(series("optim/kl_sample_train_v2", [0, 0.3, 0, 0.02]))).toEqual([]);
    expect(watched(series("optim/kl_sample_train_v2", [0, 0.3, 0.3]))).toEqual([["kl", 2]]);
    const collapsed = (good: number) =>
      [0.5, 0.2, 0.01, 0.01, 0.01].map((entropy) => ({
        "optim/entropy": entropy,
        "env/all/by_group/frac_all_good": good,
      }));
    expect(watched(collapsed(0.1))).toEqual([["entropy", 4]]);
    expect(watched(collapsed(0.9))).toEqual([]);
    const mixed = series("env/all/by_group/frac_mixed", [0.5, 0, 0.3, 0, 0.05, 0]);
    expect(watched(mixed)).toEqual([["equal_rewards", 5]]);
    // A run may be able to do its task at its end, and not in its first half.
    const alike = (from: number, good: number) =>
      Array.from({ length: RUN.steps }, (_, step) => ({
        "env/all/by_group/frac_mixed": step < from ? 0.5 : 0.05,
        "env/all/by_group/frac_all_good": step < from ? 0.3 : good,
      }));
    expect(watched(alike(18, 0.9))).toEqual([]);
    expect(watched(alike(17, 0.9))).toEqual([["equal_rewards", 19]]);
    expect(watched(alike(18, 0.1))).toEqual([["equal_rewards", 20]]);
    // What a teacher says is learned from, whatever the rewards are.
    expect(watched([...mixed, ...collapsed(0)], { hasRewards: false })).toEqual([]);
    expect(watched(series("sampling/frac_cut", [0.9, 0.1, 0.4, 0.6, 0.7]))).toEqual([["answers_cut", 4]]);
  });

  it("warns when there is nothing to learn", () => {
    expect(watched(series("num_loss_tokens", [50, 0]))).toEqual([["nothing_to_learn", 1]]);
    expect(watched(series("dpo_loss", [1e-4, 1e-5, 1e-5]))).toEqual([["nothing_to_learn", 2]]);
    expect(watched(series("grad_norm:mean", [0, 0, 0]))).toEqual([["nothing_to_learn", 2]]);
  });

  it("warns of a learning rate far from the recommended one before the first step", () => {
    expect(watched([], { learningRate: 1e-3 })).toEqual([]);
    expect(watched([], { learningRate: 4e-6 })).toEqual([]);
    expect(watched([], { learningRate: 1.1e-3 })).toEqual([["learning_rate", 0]]);
    expect(watched([], { learningRate: 3e-6 })).toEqual([["learning_rate", 0]]);
    const [warning] = new RunWatch({ ...RUN, learningRate: 2.5e-3 }).begin();
    expect(warning).toMatchObject({ message: "the learning rate 0.0025 is 25 times the recommended one" });
  });
});
