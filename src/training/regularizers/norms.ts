import { eitherOf, type FieldsOf, number, optionTable, portion, withDefault } from "../../wire/index.js";
import { abs, add, mul, sub, type Tensor } from "../autograd/index.js";
import {
  masked,
  type PerDatum,
  perDatum,
  readMask,
  readPerDatum,
  reduceTokens,
  TOKEN_OPTIONS,
  type TokenOptions,
} from "./per-token.js";
import { namedTerm, type Term, type TermInput } from "./term.js";

/** Which tokens `l1`, `l2` and `elasticNet` count, and what they are held close to. */
export interface NormOptions extends TokenOptions {
  /** Centre that logprobs are held close to: one number (default 0), or numbers for each datum. */
  readonly centre?: number | PerDatum | undefined;
}

const NORM_FIELDS = {
  ...TOKEN_OPTIONS,
  centre: withDefault(
    eitherOf<number, PerDatum>((given) => typeof given === "number", number, perDatum),
    0,
  ),
} satisfies FieldsOf<NormOptions>;
const NORM_OPTIONS = optionTable(NORM_FIELDS);
const ELASTIC_NET_OPTIONS = optionTable({ ...NORM_FIELDS, l1Ratio: withDefault(portion, 0.5) });

type FilledNormOptions = ReturnType<(typeof NORM_OPTIONS)["check"]>;

/** `mean |logprob - centre|` */
export function l1(options: NormOptions = {}): Term {
  const settings = NORM_OPTIONS.check(options, "l1");
  return namedTerm("l1", (input) => norm("l1", settings, input, abs));
}

/** `mean (logprob - centre)^2` */
export function l2(options: NormOptions = {}): Term {
  const settings = NORM_OPTIONS.check(options, "l2");
  return namedTerm("l2", (input) => norm("l2", settings, input, square));
}

/** `l1Ratio * l1 + (1 - l1Ratio) * l2` */
export function elasticNet(options: NormOptions & { readonly l1Ratio?: number | undefined } = {}): Term {
  const { l1Ratio, ...settings } = ELASTIC_NET_OPTIONS.check(options, "elasticNet");
  return namedTerm("elasticNet", (input) =>
    norm("elasticNet", settings, input, (distance) =>
      add(mul(abs(distance), l1Ratio), mul(square(distance), 1 - l1Ratio)),
    ),
  );
}

const square = (values: Tensor): Tensor => mul(values, values);

function norm(
  termName: string,
  options: FilledNormOptions,
  input: TermInput,
  measure: (distance: Tensor) => Tensor,
): Tensor {
  const { centre } = options;
  return reduceTokens(
    options,
    input.logprobs.map((logprobs, index) => {
      const mask = readMask(termName, options, input, index);
      const target =
        typeof centre === "number" ? centre : readPerDatum(termName, "centre", centre, input, index);
      return { values: measure(sub(masked(mask, logprobs), masked(mask, target))), mask };
    }),
  );
}
