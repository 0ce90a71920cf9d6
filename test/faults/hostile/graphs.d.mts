import type { CustomLossGraph } from "../../../src/wire/index.js";

export const GRAPH_KINDS: readonly string[];
export function hostileGraph(
  random: () => number,
  index: number,
): { kind: string; graph: CustomLossGraph; mustRefuse?: boolean };
