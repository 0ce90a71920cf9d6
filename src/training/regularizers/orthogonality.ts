import { optionTable } from "../../wire/index.js";
import {
  add,
  concat,
  div,
  matmul,
  mul,
  reshape,
  sqrt,
  stack,
  sum,
  tensor,
  transpose,
} from "../autograd/index.js";
import { masked, readMask, TOKEN_OPTIONS, type TokenOptions } from "./per-token.js";
import { namedTerm, type Term } from "./term.js";

const TINY = 1e-12;

const ORTHOGONALITY_OPTIONS = optionTable({ mask: TOKEN_OPTIONS.mask });

/**
 * `mean over pairs of datums of cos^2`, the cosine being that of the angle between their logprobs; shorter ones are
 * filled up with zeros, positions that do not count are zeros.
 */
export function orthogonality(options: Pick<TokenOptions, "mask"> = {}): Term {
  const settings = ORTHOGONALITY_OPTIONS.check(options, "orthogonality");
  return namedTerm("orthogonality", (input) => {
    const datums = input.logprobs.length;
    if (datums < 2) return tensor(0);
    const longest = Math.max(...input.logprobs.map(({ size }) => size));
    const rows = input.logprobs.map((logprobs, index) => {
      const mask = readMask("orthogonality", settings, input, index);
      const flat = reshape(mul(masked(mask, logprobs), mask), [logprobs.size]);
      const filled = concat([flat, new Float64Array(longest - logprobs.size)]);
      return div(filled, sqrt(add(sum(mul(filled, filled)), TINY)));
    });
    const matrix = stack(rows);
    const cosines = matmul(matrix, transpose(matrix));
    const others = Float64Array.from({ length: datums * datums }, (_, place) =>
      Math.floor(place / datums) === place % datums ? 0 : 1,
    );
    const squares = mul(mul(cosines, cosines), tensor(others, [datums, datums]));
    return div(sum(squares), datums * (datums - 1));
  });
}
