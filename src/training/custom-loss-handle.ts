import { ValidationError } from "../errors.js";
import { type Datum, snakeToCamel, subfield } from "../wire/index.js";
import type { CustomLossGraph, CustomLossInput } from "../wire/training/custom-loss-graph.js";
import { stack, sum, tensor } from "./autograd/index.js";
import type { CustomLossFn } from "./custom-loss.js";

/** A loss that `createCustomLoss` has traced, for `forwardBackwardCustom` of the same session. */
export class CustomLossHandle {
  readonly name: string;
  /** The logprobs and the inputs that the loss reads, with their ranks, by their names on the wire. */
  readonly inputs: readonly CustomLossInput[];
  /** The session that created the loss; only its clients can use it. */
  readonly sessionId: string;
  /** Traced computation of the loss; it runs instead of the function. */
  readonly graph: CustomLossGraph;
  /** The server's id of the loss; absent where it runs in the client. */
  readonly lossId: string | undefined;

  /** @internal */
  constructor(parts: Pick<CustomLossHandle, "name" | "inputs" | "sessionId" | "graph" | "lossId">) {
    this.name = parts.name;
    this.inputs = parts.inputs;
    this.sessionId = parts.sessionId;
    this.graph = parts.graph;
    this.lossId = parts.lossId;
  }
}

/** Refuses data that lack an input of the loss, or have it with another rank. */
export function checkLossData({ name, inputs }: CustomLossHandle, data: readonly Datum[]): void {
  for (const [index, { lossFnInputs }] of data.entries()) {
    for (const [place, input] of inputs.entries()) {
      // The logprobs have the shape of the targets.
      const key = place === 0 ? "targetTokens" : snakeToCamel(input.name);
      const field = subfield(`data[${index}].lossFnInputs`, key);
      const given = lossFnInputs[key];
      if (given === undefined)
        throw new ValidationError(field, `${field} is missing: the loss ${name} reads it`);
      if (given.shape.length !== input.rank)
        throw new ValidationError(
          field,
          `${field} must have rank ${input.rank}, as the loss ${name} declares, got the shape [${given.shape.join(", ")}]`,
        );
    }
  }
}

/** Runs a loss in the client, datum by datum, for servers that store none. */
export async function lossInClient(handle: CustomLossHandle): Promise<CustomLossFn> {
  const { compileLossGraph, combineDatumMetrics } = await import("./loss-graph/index.js");
  const program = compileLossGraph(handle.graph, handle.inputs);
  const unlimited = { charge: () => {} };
  return (data, logprobs) => {
    const outputs = data.map(({ lossFnInputs }, index) => {
      const inputs = handle.inputs.slice(1).map(({ name }) => {
        const given = lossFnInputs[snakeToCamel(name)]!;
        return { tensor: tensor(given), dtype: given.dtype };
      });
      return program.run([{ tensor: logprobs[index]!, dtype: "float32" }, ...inputs], unlimited);
    });
    const loss = sum(stack(outputs.map((output) => output.loss)));
    return { loss, metrics: combineDatumMetrics(outputs.map(({ metrics }) => metrics)) };
  };
}
