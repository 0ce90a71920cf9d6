import { ARRANGEMENTS } from "./arrange.js";
import { CASTS } from "./casts.js";
import { ELEMENTWISE } from "./elementwise.js";
import { EXTREMES } from "./extremes.js";
import { FACTS } from "./facts.js";
import { FUNCTIONAL_LOSSES } from "./functional-losses.js";
import { GATHERING } from "./gathering.js";
import { INDEXING } from "./indexing.js";
import { JOINING } from "./joining.js";
import { LOGIC } from "./logic.js";
import { NEW_TENSORS } from "./new-tensors.js";
import type { GraphOperation } from "./operation.js";
import { PRODUCTS } from "./products.js";
import { REDUCTIONS } from "./reductions.js";
import { MATH, UNARY } from "./unary.js";

const OPERATIONS: ReadonlyMap<string, GraphOperation> = new Map(
  [
    ...[ELEMENTWISE, UNARY, LOGIC, CASTS, REDUCTIONS, EXTREMES, ARRANGEMENTS],
    ...[JOINING, GATHERING, INDEXING, NEW_TENSORS, PRODUCTS, FUNCTIONAL_LOSSES, FACTS],
  ].flatMap((table) => Object.entries(table)),
);
const MATH_OPERATIONS: ReadonlyMap<string, GraphOperation> = new Map(Object.entries(MATH));

/** Modules of torch and Python whose functions are known by their last name; the longer names first. */
const MODULES = [
  ...["torch._C._special.special_", "torch.special.", "torch._C._nn.", "torch._C._linalg."],
  ...["torch.linalg.", "torch.nn.functional.", "torch.functional.", "torch.Tensor.", "torch.", "operator."],
];
/** Names of Python's operators and of `getattr`; as methods they mean something else, or nothing. */
const NOT_METHODS = new Set(["getitem", "getattr"]);

/** The operation that a function's qualified name stands for, such as `torch.exp`. */
export function functionNamed(target: string): GraphOperation | undefined {
  if (target === "getattr") return OPERATIONS.get(target);
  if (target.startsWith("math.")) return MATH_OPERATIONS.get(target.slice("math.".length));
  const module = MODULES.find((each) => target.startsWith(each));
  const name = module === undefined ? "" : target.slice(module.length);
  return name.startsWith(".") || name === "getattr" ? undefined : OPERATIONS.get(name);
}

/** The operation that a method of a tensor stands for, such as `sum`. */
export function methodNamed(target: string): GraphOperation | undefined {
  if (NOT_METHODS.has(target) || target.startsWith(".")) return undefined;
  return OPERATIONS.get(`.${target}`) ?? OPERATIONS.get(target);
}
