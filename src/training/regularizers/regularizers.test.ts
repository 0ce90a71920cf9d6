import { describe, expect, it } from "vitest";
import { Datum } from "../../wire/index.js";
import {
  add,
  exp,
  mean,
  mul,
  neg,
  sigmoid,
  stack,
  sum,
  type Tensor,
  tensor,
  variable,
} from "../autograd/index.js";
import { type CustomLossFn, evaluateCustomLoss, withGradients } from "../custom-loss.js";
import {
  consistency,
  elasticNet,
  entropy,
  gradientPenalty,
  klToReference,
  l1,
  l2,
  orthogonality,
  type Regularizer,
  type Term,
  withRegularizers,
} from "./index.js";

/** Three datums of different lengths, each with its own reference and mask. */
const LOGPROBS = [
  [-0.4, -1.3, -2.2],
  [-0.9, -0.2],
  [-3.1, -0.7, -1.9, -0.3],
];
const REFERENCES = [
  [-0.6, -1, -2.9],
  [-0.5, -0.4],
  [-2, -0.8, -1.1, -0.9],
];
const MASKS = [
  [0, 1, 1],
  [1, 1],
  [1, 0, 0, 1],
];
const datum = (index: number, extra: Record<string, Float32Array> = {}) =>
  new Datum({
    modelInput: LOGPROBS[index]!.map((_, position) => position),
    lossFnInputs: {
      targetTokens: new Int32Array(LOGPROBS[index]!.length),
      refLogprobs: new Float64Array(REFERENCES[index]!),
      ...extra,
    },
  });
const plain = LOGPROBS.map((_, index) => datum(index));
const withMasks = LOGPROBS.map((_, index) => datum(index, { mask: new Float32Array(MASKS[index]!) }));

const variables = (values: readonly (readonly number[])[]) =>
  values.map((each, index) => variable([...each], { label: `data[${index}].logprobs` }));

const nothing: CustomLossFn = (_, logprobs) => ({
  loss: mul(sum(stack(logprobs.map((each) => sum(each)))), 0),
});
const curved: CustomLossFn = (_, logprobs) => ({
  loss: sum(stack(logprobs.map((each) => add(sum(exp(each)), mul(sum(each), sum(each)))))),
  metrics: { own: 3 },
});

const termValue = async (term: Term, data = withMasks, base = nothing) =>
  (await evaluateCustomLoss(withRegularizers(base, [{ weight: 1, term }]), data, variables(LOGPROBS)))
    .regularizers!.terms[0]!.value;

/** The largest difference between a regularized loss's gradients and central differences of it. */
async function gradientError(
  base: CustomLossFn,
  regularizers: readonly Regularizer[],
  data: readonly Datum[] = withMasks,
  values: readonly (readonly number[])[] = LOGPROBS,
  toVariables: (values: readonly (readonly number[])[]) => Tensor[] = variables,
): Promise<number> {
  const lossFn = withRegularizers(base, regularizers);
  const { gradients } = await evaluateCustomLoss(lossFn, data, toVariables(values));
  const step = 1e-5;
  let worst = 0;
  for (const [index, row] of values.entries()) {
    for (const position of row.keys()) {
      const at = async (shift: number) => {
        const moved = values.map((each) => [...each]);
        moved[index]![position]! += shift;
        return (await evaluateCustomLoss(lossFn, data, toVariables(moved))).loss;
      };
      const expected = ((await at(step)) - (await at(-step))) / (2 * step);
      worst = Math.max(worst, Math.abs(gradients[index]![position]! - expected));
    }
  }
  return worst;
}

/** The mean of a formula over the positions whose mask is 1, in plain arithmetic. */
function plainMean(formula: (logprob: number, reference: number) => number, useMasks = true): number {
  const values = LOGPROBS.flatMap((row, index) =>
    row.flatMap((logprob, position) =>
      useMasks && MASKS[index]![position] === 0 ? [] : [formula(logprob, REFERENCES[index]![position]!)],
    ),
  );
  return values.reduce((total, each) => total + each, 0) / values.length;
}

const f32 = Math.fround;
const perToken: [name: string, term: Term, formula: (x: number, r: number) => number][] = [
  ["l1", l1(), (x) => Math.abs(x)],
  ["l1 around a number", l1({ centre: -1 }), (x) => Math.abs(x + 1)],
  ["l2", l2(), (x) => x ** 2],
  ["l2 around the reference", l2({ centre: "refLogprobs" }), (x, r) => (x - f32(r)) ** 2],
  ["elastic net", elasticNet({ l1Ratio: 0.3 }), (x) => 0.3 * Math.abs(x) + 0.7 * x ** 2],
  ["entropy", entropy(), (x) => -x],
  ["KL k1", klToReference({ reference: "refLogprobs", estimator: "k1" }), (x, r) => x - f32(r)],
  ["KL k2", klToReference({ reference: "refLogprobs", estimator: "k2" }), (x, r) => (x - f32(r)) ** 2 / 2],
  ["KL k3", klToReference({ reference: "refLogprobs" }), (x, r) => Math.exp(f32(r) - x) - 1 - (f32(r) - x)],
  ["consistency mse", consistency({ reference: REFERENCES }), (x, r) => (x - r) ** 2],
  ["consistency l1", consistency({ kind: "l1", reference: REFERENCES }), (x, r) => Math.abs(x - r)],
  [
    "consistency kl",
    consistency({ kind: "kl", reference: (_, index) => REFERENCES[index]! }),
    (x, r) => Math.exp(r) * (r - x) + (1 - Math.exp(r)) * Math.log((1 - Math.exp(r)) / (1 - Math.exp(x))),
  ],
];

describe("terms of one value per token", () => {
  it.each(perToken)("%s is the mean of its formula over the tokens that count", async (_, term, formula) => {
    expect(await termValue(term)).toBeCloseTo(plainMean(formula), 12);
    expect(await termValue(term, plain)).toBeCloseTo(plainMean(formula, false), 12);
  });

  it("sums when asked to", async () => {
    expect(await termValue(l2({ reduction: "sum" }), plain)).toBeCloseTo(
      plainMean((x) => x ** 2, false) * 9,
      12,
    );
  });

  it("takes the mask from an option first, then from `mask`, then from `weights`", async () => {
    const weighted = LOGPROBS.map((_, index) =>
      datum(index, { weights: new Float32Array(MASKS[index]!).map((m) => m / 4) }),
    );
    const expected = plainMean((x) => x ** 2);
    expect(await termValue(l2(), weighted)).toBeCloseTo(expected, 12);
    expect(await termValue(l2({ mask: MASKS }), plain)).toBeCloseTo(expected, 12);
    expect(await termValue(l2({ mask: (_, index) => MASKS[index]! }), plain)).toBeCloseTo(expected, 12);
    expect(await termValue(l2({ mask: [1, 1, 1] }), withMasks)).toBeCloseTo(
      plainMean((x) => x ** 2, false),
      12,
    );
  });

  it("gives no weight to what a mask leaves out, be it infinite", async () => {
    const infinite = LOGPROBS.map((row) => [...row]);
    infinite[0]![0] = Number.NEGATIVE_INFINITY;
    const base: CustomLossFn = (_, logprobs) => ({ loss: sum(logprobs[1]!) });
    for (const [, term] of perToken) {
      const lossFn = withRegularizers(base, [{ weight: 1, term }]);
      const { gradients, loss } = await evaluateCustomLoss(lossFn, withMasks, variables(infinite));
      expect(loss).toBeCloseTo(-1.1 + (await termValue(term)), 10);
      expect(gradients[0]![0]).toBe(0);
    }
  });

  it("is 0 where no token counts", async () => {
    expect(await termValue(l2({ mask: [0, 0, 0] }), plain)).toBe(0);
  });
});

describe("terms over whole datums", () => {
  const dot = (a: number[], b: number[]) =>
    a.reduce((total, each, index) => total + each * (b[index] ?? 0), 0);
  const cosine = (a: number[], b: number[]) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
  const counted = (rows: number[][]) =>
    rows.map((row, index) => row.map((each, i) => each * MASKS[index]![i]!));

  it("cosine consistency is the mean over datums of 1 - cos", async () => {
    const [x, r] = [counted(LOGPROBS), counted(REFERENCES)];
    const expected = (3 - x.reduce((total, row, index) => total + cosine(row, r[index]!), 0)) / 3;
    expect(await termValue(consistency({ kind: "cosine", reference: REFERENCES }))).toBeCloseTo(expected, 10);
  });

  it("orthogonality is the mean over pairs of cos^2", async () => {
    const [a, b, c] = counted(LOGPROBS) as [number[], number[], number[]];
    const expected = (cosine(a, b) ** 2 + cosine(a, c) ** 2 + cosine(b, c) ** 2) / 3;
    expect(await termValue(orthogonality())).toBeCloseTo(expected, 10);
  });

  it("gradient penalty is the mean over datums of (|g| - target)^2", async () => {
    // d/dx of sum(exp(x)) + (sum x)^2
    const norms = LOGPROBS.map((row) => {
      const total = row.reduce((all, each) => all + each, 0);
      return Math.sqrt(row.reduce((squares, each) => squares + (Math.exp(each) + 2 * total) ** 2, 0));
    });
    const expected = norms.reduce((all, each) => all + (each - 1) ** 2, 0) / 3;
    expect(await termValue(gradientPenalty({ target: 1 }), plain, curved)).toBeCloseTo(expected, 10);
  });

  it("consistency of pairs compares datums with each other, both ways", async () => {
    const rows = [
      [-0.4, -1.3],
      [-0.9, -0.2],
    ];
    const data = rows.map(
      (row) => new Datum({ modelInput: [1, 2], lossFnInputs: { targetTokens: row.map(() => 0) } }),
    );
    for (const kind of ["mse", "l1", "cosine", "kl"] as const) {
      const term = consistency({ kind, pairs: [[0, 1]] });
      const lossFn = withRegularizers(nothing, [{ weight: 2, term }]);
      const { gradients, loss } = await evaluateCustomLoss(lossFn, data, variables(rows));
      expect(loss).toBeGreaterThan(0);
      for (const gradient of gradients) expect(gradient.some((each) => Math.abs(each) > 1e-3)).toBe(true);
      expect(await gradientError(nothing, [{ weight: 2, term }], data, rows)).toBeLessThan(1e-8);
    }
  });
});

describe("several alternatives per position", () => {
  const shape = [2, 3];
  const probabilities = [0.5, 0.3, 0.2, 0.1, 0.6, 0.25];
  const references = [0.4, 0.4, 0.2, 0.3, 0.3, 0.3];
  const rows = [probabilities.map(Math.log)];
  const data = [
    new Datum({
      modelInput: [1, 2],
      lossFnInputs: {
        targetTokens: { data: new Int32Array(6), shape },
        refLogprobs: { data: new Float64Array(references.map(Math.log)), shape, dtype: "float32" },
      },
    }),
  ];
  const toVariables = (values: readonly (readonly number[])[]) =>
    values.map((each) => variable(tensor([...each], shape)));
  const value = async (term: Term) =>
    (await evaluateCustomLoss(withRegularizers(nothing, [{ weight: 1, term }]), data, toVariables(rows)))
      .loss;
  const plainSum = (formula: (p: number, q: number) => number) =>
    probabilities.reduce((total, p, index) => total + formula(p, references[index]!), 0) / 2;

  it("are summed over, and positions averaged", async () => {
    expect(await value(entropy())).toBeCloseTo(
      plainSum((p) => -p * Math.log(p)),
      10,
    );
    expect(await value(klToReference({ reference: "refLogprobs", estimator: "k1" }))).toBeCloseTo(
      plainSum((p, q) => p * Math.log(p / q)),
      6,
    );
    // The last bucket of the first row is empty in both, in the second 0.1 against 0.05.
    expect(await value(consistency({ kind: "kl", reference: "refLogprobs" }))).toBeCloseTo(
      plainSum((p, q) => q * Math.log(q / p)) + (0.1 * Math.log(0.1 / 0.05)) / 2,
      5,
    );
  });

  it.each([
    ["entropy", entropy()],
    ["k1", klToReference({ reference: "refLogprobs", estimator: "k1" })],
    ["k3", klToReference({ reference: "refLogprobs" })],
    ["l2 with a mask per position", l2({ mask: [[1, 0]] })],
    ["entropy with a mask per position", entropy({ mask: [[0, 1]] })],
  ])("%s has the gradient of what it says", async (_, term) => {
    expect(await gradientError(nothing, [{ weight: 1.5, term }], data, rows, toVariables)).toBeLessThan(1e-8);
  });
});

describe("gradients", () => {
  const direct: [string, Term][] = [
    ...perToken.filter(([name]) => name !== "entropy").map(([name, term]): [string, Term] => [name, term]),
    ["entropy, direct", entropy({ gradient: "direct" })],
    ["cosine", consistency({ kind: "cosine", reference: REFERENCES })],
    ["orthogonality", orthogonality()],
  ];
  it.each(direct)("%s agrees with finite differences and is not zero", async (_, term) => {
    expect(await gradientError(curved, [{ weight: 0.7, term }])).toBeLessThan(1e-7);
    const lossFn = withRegularizers(curved, [{ weight: 0.7, term }]);
    const { regularizers } = await evaluateCustomLoss(lossFn, withMasks, variables(LOGPROBS));
    expect(regularizers!.terms[0]!.gradientNorm).toBeGreaterThan(1e-3);
  });

  it("the gradient penalty agrees with finite differences of itself", async () => {
    expect(await gradientError(curved, [{ weight: 0.1, term: gradientPenalty({ target: 1 }) }])).toBeLessThan(
      1e-4,
    );
  });

  it("the gradient penalty works for a loss that brings its own gradients in 32 bits", async () => {
    const own = withGradients((_, logprobs) => ({
      loss: logprobs.reduce((all, row) => all + row.reduce((total, each) => total + each ** 2, 0), 0),
      gradients: logprobs.map((row) => row.map((each) => 2 * each)),
    }));
    const lossFn = withRegularizers(own, [{ weight: 1, term: gradientPenalty() }]);
    const { gradients } = await evaluateCustomLoss(lossFn, plain, variables(LOGPROBS));
    // |2x|^2 / 3 has the gradient 8x / 3, on top of 2x.
    for (const [index, row] of LOGPROBS.entries()) {
      for (const [position, x] of row.entries()) {
        expect(gradients[index]![position]).toBeCloseTo(2 * x + (8 * x) / 3, 2);
      }
    }
  });

  it("scores are the gradients of entropy and KL, on average over what the model samples", async () => {
    // A softmax over three tokens; the exact gradients by its logits, and the averages of the estimates.
    const logits = [0.3, -0.8, 1.1];
    const total = logits.reduce((sum, each) => sum + Math.exp(each), 0);
    const p = logits.map((each) => Math.exp(each) / total);
    const q = [0.2, 0.5, 0.3];
    const entropyNow = -p.reduce((sum, each) => sum + each * Math.log(each), 0);
    const klNow = p.reduce((sum, each, k) => sum + each * Math.log(each / q[k]!), 0);
    const exactEntropy = p.map((each) => -each * (Math.log(each) + entropyNow));
    const exactKl = p.map((each, k) => each * (Math.log(each / q[k]!) - klNow));
    const one = [new Datum({ modelInput: [1], lossFnInputs: { targetTokens: [0] } })];
    const average = async (makeTerm: (token: number) => Term) => {
      const byLogits = [0, 0, 0];
      for (const [token, probability] of p.entries()) {
        const lossFn = withRegularizers(nothing, [{ weight: 1, term: makeTerm(token) }]);
        const { gradients } = await evaluateCustomLoss(lossFn, one, variables([[Math.log(probability)]]));
        for (const k of p.keys()) {
          byLogits[k]! += probability * gradients[0]![0]! * ((k === token ? 1 : 0) - p[k]!);
        }
      }
      return byLogits;
    };
    const scoredEntropy = await average(() => entropy());
    const scoredKl = await average((token) =>
      klToReference({ reference: [[Math.log(q[token]!)]], estimator: "k1", gradient: "score" }),
    );
    const directEntropy = await average(() => entropy({ gradient: "direct" }));
    for (const k of p.keys()) {
      expect(scoredEntropy[k]).toBeCloseTo(exactEntropy[k]!, 12);
      expect(scoredKl[k]).toBeCloseTo(exactKl[k]!, 12);
      expect(directEntropy[k]).toBeCloseTo(0, 12);
    }
  });
});

describe("the report", () => {
  it("tells value, weight, contribution and gradient norm of each term, and the total", async () => {
    const own: Term = ({ logprobs }) => mean(sigmoid(logprobs[0]!));
    const lossFn = withRegularizers(curved, [
      { weight: 0.5, term: l2() },
      { weight: -0.1, term: l2({ centre: -1 }) },
      { weight: 2, name: "mine: squashed", term: own },
      { weight: 3, term: async ({ logprobs }) => neg(mean(logprobs[1]!)) },
    ]);
    const { loss, metrics, regularizers, gradients } = await evaluateCustomLoss(
      lossFn,
      withMasks,
      variables(LOGPROBS),
    );
    const report = regularizers!;
    expect(report.terms.map(({ name, weight }) => [name, weight])).toEqual([
      ["l2", 0.5],
      ["l2_1", -0.1],
      ["mine_ squashed", 2],
      ["term", 3],
    ]);
    for (const { contribution, weight, value } of report.terms) expect(contribution).toBe(weight * value);
    const contributions = report.terms.reduce((total, each) => total + each.contribution, 0);
    expect(report.total).toBeCloseTo(report.base.value + contributions, 12);
    expect(loss).toBe(report.total);
    expect(report.terms[3]!.gradientNorm).toBeCloseTo(3 * Math.sqrt(0.5), 12);
    expect(report.gradientNorm).toBeCloseTo(Math.hypot(...gradients.flatMap((each) => [...each])), 12);
    expect(metrics).toMatchObject({
      own: 3,
      "base_loss:sum": report.base.value,
      "regularizer/l2/value:mean": report.terms[0]!.value,
      "regularizer/l2_1/weight:mean": -0.1,
      "regularizer/term/contribution:sum": report.terms[3]!.contribution,
      "regularizer/term/gradient_norm:mean": report.terms[3]!.gradientNorm,
    });
    expect(metrics["regularizer/total:sum"]).toBeCloseTo(contributions, 12);
    for (const name of Object.keys(metrics).filter((each) => each !== "own")) {
      expect(name).toMatch(/^[^:]+:(sum|mean)$/);
    }
  });

  it("names the term and the datum in errors", async () => {
    const run = (term: Term, data = plain) =>
      evaluateCustomLoss(withRegularizers(nothing, [{ weight: 1, term }]), data, variables(LOGPROBS));
    await expect(run(klToReference({ reference: "oldLogprobs" }))).rejects.toThrow(
      'Regularizer "klToReference": klToReference: data[0] has no input "oldLogprobs" for its reference',
    );
    await expect(run(l2({ centre: [[0, 0, 0], [0, 0, 0], 0] }))).rejects.toThrow(
      "l2: the centre of data[1] must have the shape [2] of its logprobs, got [3]",
    );
    await expect(run(l1({ mask: [1, 1] }))).rejects.toThrow("data[2] has none in the list for its mask");
    await expect(run(() => 3 as never)).rejects.toThrow(
      "a term must return a Tensor of tinkerts/autograd, got number",
    );
    await expect(run(({ logprobs }) => sum(exp(mul(logprobs[2]!, -1000))))).rejects.toThrow(
      /Regularizer "term": The loss is Infinity: the result of exp .*data\[2\]\.logprobs/,
    );
    await expect(run(consistency({ pairs: [[0, 1]] }))).rejects.toThrow(
      "data[0] and data[1] must have logprobs of one shape, got [3] and [2]",
    );
    expect(() => consistency({})).toThrow("either a reference or pairs");
    expect(() => withRegularizers(nothing, [{ weight: Number.NaN, term: l1() }])).toThrow(
      "regularizers[0].weight must be a finite number, got NaN",
    );
    expect(() => withRegularizers(nothing, [{ weight: 1, term: "l2" as never }])).toThrow(
      'regularizers[0].term must be a function, got "l2"',
    );
    expect(() => withRegularizers(nothing, [{ weight: 1, term: l1(), nmae: "small" } as never])).toThrow(
      "unknown field regularizers[0].nmae; did you mean name?",
    );
  });
});
