/** Runs a loss written for `@jax-js/jax`, an optional peer, as a custom loss. */
import { TinkerError } from "../errors.js";
import type { Datum } from "../wire/index.js";
import type { CustomLossFn } from "./custom-loss.js";

/** Members of a jax-js array that are used here. */
export interface JaxArray {
  reshape(shape: number[]): JaxArray;
  /** Reads the values and gives the array back to jax-js. */
  data(): Promise<ArrayLike<number>>;
  readonly size: number;
}

/** Functions of the module `@jax-js/jax` that are used here. */
export interface JaxModule {
  readonly numpy: { array(values: Float32Array): JaxArray };
  valueAndGrad(
    lossFn: (...inputs: never[]) => unknown,
    options: { readonly hasAux: true },
  ): (...inputs: never[]) => unknown;
}

/**
 * A loss in jax-js: it gets one array per datum and owns them, so each is used once or through `.ref`, as everywhere
 * in jax-js. Returns the loss, or the loss and metrics of one element each.
 */
export type JaxLossFn<A = JaxArray> = (
  data: readonly Datum[],
  logprobs: A[],
) => A | { readonly loss: A; readonly metrics?: Readonly<Record<string, A>> | undefined };

/**
 * A custom loss from a jax-js function; jax-js works out the gradients. It runs on jax-js's default device. Where a
 * bundler has to see the import, hand over the module: `jaxLoss(lossFn, { jax })`.
 */
export function jaxLoss<A = JaxArray>(
  lossFn: JaxLossFn<A>,
  options: { readonly jax?: JaxModule | undefined } = {},
): CustomLossFn {
  return async (data, logprobs) => {
    const jax = options.jax ?? (await importJax());
    const differentiate = jax.valueAndGrad(
      (arrays: A[]) => {
        const output = lossFn(data, arrays);
        const isPair = typeof output === "object" && output !== null && "loss" in output;
        return isPair ? [output.loss, output.metrics ?? {}] : [output, {}];
      },
      { hasAux: true },
    );
    const arrays = logprobs.map((each) => {
      const flat = jax.numpy.array(new Float32Array(each.values));
      return each.shape.length === 1 ? flat : flat.reshape([...each.shape]);
    });
    const [[loss, metrics], gradients] = differentiate(arrays as never) as [
      [JaxArray, Record<string, JaxArray>],
      JaxArray[],
    ];
    return {
      loss: await readNumber("The loss", loss),
      gradients: await Promise.all(gradients.map(async (each) => new Float32Array(await each.data()))),
      metrics: Object.fromEntries(
        await Promise.all(
          Object.entries(metrics).map(async ([name, value]) => [
            name,
            await readNumber(`The metric ${name}`, value),
          ]),
        ),
      ),
    };
  };
}

async function readNumber(what: string, array: JaxArray): Promise<number> {
  const values = await array.data();
  if (values.length === 1) return values[0]!;
  throw new TinkerError(`${what} of a jax-js function must have one element, got ${values.length}.`);
}

async function importJax(): Promise<JaxModule> {
  // Not written out, or bundlers would want the optional package at build time.
  const specifier: string = "@jax-js/jax";
  try {
    return (await import(/* @vite-ignore */ /* webpackIgnore: true */ specifier)) as JaxModule;
  } catch (error) {
    throw new TinkerError(
      'jaxLoss needs the package "@jax-js/jax": install it, or give the module as `jaxLoss(lossFn, { jax })`.',
      { cause: error },
    );
  }
}
