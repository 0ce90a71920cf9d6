import { messageOf, ValidationError } from "../../errors.js";
import {
  CUSTOM_METRIC_NAME,
  type CustomLossGraph,
  type CustomLossInput,
  type CustomLossNode,
} from "../../wire/training/custom-loss-graph.js";
import type { Operand, Tensor } from "../autograd/index.js";
import { TRACER_KEY, type Tracer, tracerOf } from "../autograd/tracer.js";
import { NODES } from "./nodes.js";

/** Result of a per-datum loss; each metric is named `custom/NAME:sum` or `custom/NAME:mean`. */
export interface PerDatumLoss {
  /** One element, computed from the logprobs. */
  readonly loss: Tensor;
  readonly metrics?: Readonly<Record<string, Tensor>> | undefined;
}

/**
 * A loss of one datum, written with `tinkerts/autograd`; the losses of a batch are added up. It gets the logprobs of the
 * target tokens, and the inputs that it names by their names in `lossFnInputs`.
 */
export type PerDatumLossFn<Name extends string = string> = (
  logprobs: Tensor,
  inputs: { readonly [K in Name]: Tensor },
) => PerDatumLoss;

/** A tensor whose values are not known: reading them is an error that says so. */
class TracedTensor {
  readonly tracer: LossTracer;
  readonly nodeName: string;
  /** The node of the truth values that these numbers were made from, for a comparison. */
  readonly truth: string | undefined;

  constructor(tracer: LossTracer, nodeName: string, truth?: string) {
    this.tracer = tracer;
    this.nodeName = nodeName;
    this.truth = truth;
  }

  get [TRACER_KEY](): Tracer {
    return this.tracer;
  }
}

const UNKNOWN = ["values", "data", "shape", "size", "item", "toArray", "node", "requiresGradient"] as const;
for (const property of UNKNOWN) {
  Object.defineProperty(TracedTensor.prototype, property, {
    get() {
      throw new ValidationError(
        "lossFn",
        `createCustomLoss: the loss reads ${property} of a tensor, which is not known while the loss is traced; ` +
          "use the operations of tinkerts/autograd, such as where for a choice",
      );
    },
  });
}
// Made here so that `isTensor` of every bundle knows them.
Object.defineProperty(TracedTensor.prototype, Symbol.for("tinkerts.autograd.tensor"), { value: true });

/** @internal What a recorded operation may do: add nodes, and name its operands. */
export interface NodeWriter {
  /** Adds a node and returns its name. */
  call(target: string, args: readonly unknown[], kwargs?: Readonly<Record<string, unknown>>): string;
  method(name: string, args: readonly unknown[]): string;
  /** An operand as an argument: a reference or a number. */
  argument(operand: Operand): unknown;
  /** An operand as a tensor, where torch takes no numbers: one like `like` for a number. */
  tensorArgument(operand: Operand, like: readonly Operand[]): unknown;
  /** A condition as truth values. */
  truthOf(operand: Operand): unknown;
}

export const reference = (name: string) => ({ ref: name });

/** Writes what a loss does as nodes of `torch.fx`. */
class LossTracer implements Tracer, NodeWriter {
  readonly nodes: CustomLossNode[] = [];
  readonly #counts = new Map<string, number>();

  placeholder(name: string): TracedTensor {
    return new TracedTensor(this, this.#add("placeholder", name, name, [], {}));
  }

  record(
    operation: string,
    operands: readonly Operand[],
    settings: Readonly<Record<string, unknown>> = {},
  ): Tensor {
    const write = NODES[operation];
    if (write === undefined)
      throw new ValidationError("lossFn", `createCustomLoss: ${operation} cannot be traced`);
    const written = write(this, operands, settings);
    const { name, truth } = typeof written === "string" ? { name: written, truth: undefined } : written;
    return new TracedTensor(this, name, truth) as unknown as Tensor;
  }

  call(target: string, args: readonly unknown[], kwargs: Readonly<Record<string, unknown>> = {}): string {
    return this.#add("call_function", target.slice(target.lastIndexOf(".") + 1), target, args, kwargs);
  }

  method(name: string, args: readonly unknown[]): string {
    return this.#add("call_method", name, name, args, {});
  }

  argument(operand: Operand): unknown {
    if (operand instanceof TracedTensor && operand.tracer === this) return reference(operand.nodeName);
    if (typeof operand === "number")
      return Number.isFinite(operand)
        ? operand
        : { float: String(operand).toLowerCase().replace("infinity", "inf") };
    throw new ValidationError(
      "lossFn",
      "createCustomLoss: the loss captures a tensor or a list of numbers; name it in inputs and give it with each datum",
    );
  }

  tensorArgument(operand: Operand, like: readonly Operand[]): unknown {
    if (typeof operand !== "number") return this.argument(operand);
    const shaped = like.find((each) => tracerOf([each]) !== undefined)!;
    const filled = this.call("torch.full_like", [this.argument(shaped), this.argument(operand)], {
      dtype: { dtype: "float32" },
    });
    return reference(filled);
  }

  truthOf(operand: Operand): unknown {
    if (operand instanceof TracedTensor && operand.truth !== undefined) return reference(operand.truth);
    return reference(this.call("operator.ne", [this.argument(operand), 0]));
  }

  output(result: unknown): void {
    const { loss, metrics = {} } = (
      typeof result === "object" && result !== null ? result : {}
    ) as PerDatumLoss;
    if (!(loss instanceof TracedTensor))
      throw new ValidationError(
        "lossFn",
        "createCustomLoss: the loss must return { loss, metrics? } at once, with a tensor computed from its arguments",
      );
    const named = Object.entries(metrics).map(([name, value]) => {
      if (!CUSTOM_METRIC_NAME.test(name))
        throw new ValidationError(
          `metrics.${name}`,
          `the metric ${name} must be named custom/NAME:sum or custom/NAME:mean in lowercase; the suffix says how it is combined over data`,
        );
      if (!(value instanceof TracedTensor))
        throw new ValidationError(
          `metrics.${name}`,
          `the metric ${name} must be a tensor computed from the arguments`,
        );
      return [name, reference(value.nodeName)] as const;
    });
    const output = { tuple: [reference(loss.nodeName), { dict: Object.fromEntries(named) }] };
    this.#add("output", "output", "output", [output], {});
  }

  #add(
    op: CustomLossNode["op"],
    wanted: string,
    target: string,
    args: readonly unknown[],
    kwargs: Readonly<Record<string, unknown>>,
  ): string {
    const count = this.#counts.get(wanted) ?? 0;
    this.#counts.set(wanted, count + 1);
    const name = count === 0 ? wanted : `${wanted}_${count}`;
    this.nodes.push({ op, name, target, args, kwargs });
    return name;
  }
}

/** Writes a loss as a graph. `inputs` are in its order, the logprobs first, under their names on the wire. */
export function traceLoss(
  fn: PerDatumLossFn,
  inputs: readonly CustomLossInput[],
  nameOf: (wireName: string) => string,
): CustomLossGraph {
  const tracer = new LossTracer();
  const [logprobs, ...others] = inputs.map(({ name }) => tracer.placeholder(name));
  // Inputs may be integers, which torch would not average; here all are numbers.
  const named = others.map((traced, index) => {
    const float = new TracedTensor(tracer, tracer.method("float", [reference(traced.nodeName)]));
    return [nameOf(inputs[index + 1]!.name), float] as const;
  });
  const result = run(
    fn,
    logprobs as unknown as Tensor,
    Object.fromEntries(named) as unknown as Record<string, Tensor>,
  );
  tracer.output(result);
  return { nodes: tracer.nodes };
}

function run(fn: PerDatumLossFn, logprobs: Tensor, inputs: Record<string, Tensor>): unknown {
  try {
    return fn(logprobs, inputs);
  } catch (error) {
    if (error instanceof ValidationError) throw error;
    throw new ValidationError("lossFn", `createCustomLoss: the loss cannot be traced: ${messageOf(error)}`);
  }
}
