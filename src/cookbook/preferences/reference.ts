import type { SamplingClient } from "../../clients/index.js";
import { Datum } from "../../wire/index.js";

/** The same data with the logprobs that a reference gives their targets, as `refLogprobs`; they never go to the server. */
export async function withReference(
  data: readonly Datum[],
  reference: Pick<SamplingClient, "computeLogprobs">,
  { signal }: { readonly signal?: AbortSignal | undefined } = {},
): Promise<Datum[]> {
  return Promise.all(
    data.map(async ({ modelInput, lossFnInputs }) => {
      const last = Number(lossFnInputs["targetTokens"]!.data.at(-1));
      const whole = modelInput.append({ type: "encoded_text", tokens: Int32Array.of(last) });
      const [, ...logprobs] = await reference.computeLogprobs(whole, { signal });
      // Where an image stands there is no token to be likely, and none that counts.
      const refLogprobs = Float32Array.from(logprobs, (logprob) => logprob ?? 0);
      return new Datum({ modelInput, lossFnInputs: { ...lossFnInputs, refLogprobs } });
    }),
  );
}
