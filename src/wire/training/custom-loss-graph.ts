import * as f from "../fields/index.js";

/** Rank of a value that a custom loss reads: 0 is a number, 1 is `[T]`, 2 is `[T, K]`. */
export type CustomLossRank = 0 | 1 | 2;

/** One input of a custom loss: `logprobs`, or a name in the data's `lossFnInputs`, with the rank of its values. */
export interface CustomLossInput {
  readonly name: string;
  readonly rank: CustomLossRank;
}

/** The kinds of nodes that `torch.fx` records. */
const NODE_KINDS = [
  ...(["placeholder", "get_attr", "call_function", "call_method", "call_module", "output"] as const),
];

/** One step of a traced custom loss, as `torch.fx` records it. */
export interface CustomLossNode {
  readonly op: (typeof NODE_KINDS)[number];
  /** Name of the node, which later nodes refer to. */
  readonly name: string;
  /** The input, function, method or attribute, such as `torch.exp`, `operator.mul` or `sum`. */
  readonly target: string;
  /**
   * Arguments as JSON: scalars, texts and lists stand for themselves, anything else is an object of one key such as
   * `{ ref: "exp" }` for an earlier node or `{ slice: [0, null, null] }`.
   */
  readonly args?: readonly unknown[] | undefined;
  readonly kwargs?: Readonly<Record<string, unknown>> | undefined;
}

/** A custom loss as data: its steps in the order in which they run. */
export interface CustomLossGraph {
  readonly format?: 1 | undefined;
  readonly nodes: readonly CustomLossNode[];
}

/** Names of metrics of a custom loss; what stands behind the colon says how they are combined over data. */
export const CUSTOM_METRIC_NAME = /^custom\/[a-z0-9_./-]{1,64}:(sum|mean)$/;
/** Names of inputs of a custom loss on the wire. */
export const CUSTOM_INPUT_NAME = /^[a-z_][a-z0-9_]{0,63}$/;
/** Inputs of a custom loss, the logprobs included. */
export const MAX_CUSTOM_LOSS_INPUTS = 16;

const isObject = (given: unknown) => typeof given === "object" && given !== null && !Array.isArray(given);

export const customLossInputs = f.list(
  f.message({
    name: f.text,
    rank: f.value<CustomLossRank>("0, 1 or 2", (given) => given === 0 || given === 1 || given === 2),
  } satisfies f.FieldsOf<CustomLossInput>),
);

export const customLossGraph = f.message({
  format: f.withDefault(
    f.value<1>("1", (given) => given === 1),
    1,
  ),
  nodes: f.list(
    f.message({
      op: f.oneOf(...NODE_KINDS),
      name: f.text,
      target: f.text,
      args: f.withDefault(f.value<readonly unknown[]>("a list", Array.isArray), []),
      kwargs: f.withDefault(f.value<Readonly<Record<string, unknown>>>("an object", isObject), {}),
    } satisfies f.FieldsOf<CustomLossNode>),
  ),
} satisfies f.FieldsOf<CustomLossGraph>);
