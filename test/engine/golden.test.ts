import { afterAll, describe } from "vitest";
import { goldenSuite } from "./golden-suite.js";
import { kernelChoices } from "./kernel-choices.js";

const choices = await Promise.all(
  kernelChoices.map(async ({ name, create }) => ({ name, kernels: await create() })),
);
afterAll(() => Promise.all(choices.map(({ kernels }) => kernels.close())));

describe.each(choices)("with $name kernels", ({ kernels }) => {
  goldenSuite(kernels, { logits: 1e-5, gradients: 1e-4, weights: 1e-5 });
});
