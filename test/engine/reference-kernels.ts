import { CpuMemory } from "../../src/local/engine/kernels/cpu-memory.js";
import {
  type AdamWStep,
  type Attention,
  type AttentionBackward,
  type AttentionPaged,
  type AttentionShape,
  adamwScalars,
  type F32,
  type Frozen,
  type I32,
  type Kernels,
  type LogitsGradient,
  type LogSoftmaxGather,
  type MatmulOptions,
  type Matrix,
  type NormRope,
  type NormRopeBackward,
  type RmsNorm,
  type RmsNormBackward,
  type RotateIntoPages,
  type StridedRows,
} from "../../src/local/engine/kernels/kernels.js";
import { rotateOneByOne } from "../../src/local/engine/kernels/rotate-into-pages.js";

const fround = Math.fround;

/** Every operation in plain JavaScript, one rounding at a time: what the fast kernels are held against. */
export class ReferenceKernels extends CpuMemory implements Kernels {
  readonly name = "reference";
  readonly threads = 1;
  protected buffer = new ArrayBuffer(1 << 20);

  constructor() {
    super(0, 1 << 18);
  }

  protected ensure(bytes: number): void {
    if (bytes <= this.buffer.byteLength) return;
    const larger = new ArrayBuffer(Math.max(bytes, 2 * this.buffer.byteLength));
    new Uint8Array(larger).set(new Uint8Array(this.buffer));
    this.buffer = larger;
  }

  async close(): Promise<void> {}

  /** Output by output, as files have it. */
  protected writeOutput({ offset, inputs }: Frozen, output: number, weights: Float32Array): void {
    new Float32Array(this.buffer, offset + 4 * output * inputs, inputs).set(weights);
  }

  #values(matrix: Matrix): Float32Array {
    if (matrix.kind === "f32") return this.view(matrix);
    return new Float32Array(this.buffer, matrix.offset, matrix.inputs * matrix.outputs);
  }

  matmul(c: F32, a: F32, b: Matrix, m: number, n: number, k: number, options: MatmulOptions = {}): void {
    const { transA = false, accumulate = false } = options;
    const lda = options.lda ?? (transA ? m : k);
    const ldc = options.ldc ?? n;
    // A frozen matrix is stored [outputs, inputs], and so turned.
    const transB = (b.kind === "frozen") !== (options.transB ?? false);
    const ldb = options.ldb ?? (transB ? k : n);
    const [cv, av, bv] = [this.view(c), this.view(a), this.#values(b)];
    const bColumn = new Float32Array(k);
    for (let j = 0; j < n; j++) {
      for (let l = 0; l < k; l++) bColumn[l] = transB ? bv[j * ldb + l]! : bv[l * ldb + j]!;
      for (let i = 0; i < m; i++) {
        let sum = accumulate ? cv[i * ldc + j]! : 0;
        for (let l = 0; l < k; l++) {
          const x = transA ? av[l * lda + i]! : av[i * lda + l]!;
          sum = fround(sum + fround(x * bColumn[l]!));
        }
        cv[i * ldc + j] = sum;
      }
    }
  }

  rmsNorm({ out, rstd, x, weight, rows, cols, eps }: RmsNorm): void {
    const [ov, rv, xv, wv] = [this.view(out), this.view(rstd), this.view(x), this.view(weight)];
    for (let row = 0; row < rows; row++) {
      rv[row] = inverseRms(xv, row * cols, cols, eps);
      for (let i = 0; i < cols; i++) {
        ov[row * cols + i] = fround(fround(xv[row * cols + i]! * rv[row]!) * wv[i]!);
      }
    }
  }

  rmsNormBackward({ dx, dweight, dout, x, rstd, weight, rows, cols }: RmsNormBackward): void {
    const [dxv, dv, xv, rv, wv] = [
      this.view(dx),
      this.view(dout),
      this.view(x),
      this.view(rstd),
      this.view(weight),
    ];
    const dwv = dweight ? this.view(dweight) : undefined;
    const gradient = new Float32Array(cols);
    for (let row = 0; row < rows; row++) {
      normGradient(gradient, dwv, dv.subarray(row * cols), xv.subarray(row * cols), rv[row]!, wv, cols);
      for (let i = 0; i < cols; i++) dxv[row * cols + i]! += gradient[i]!;
    }
  }

  normRope({ out, rstd, x, weight, angles, rows, heads, headDim, eps }: NormRope): void {
    const [ov, xv, cv, sv, pv] = [
      this.view(out.data),
      this.view(x.data),
      this.view(angles.cos),
      this.view(angles.sin),
      this.viewInts(angles.positions),
    ];
    const wv = weight ? this.view(weight) : undefined;
    const rv = rstd ? this.view(rstd) : undefined;
    const half = headDim / 2;
    const y = new Float32Array(headDim);
    for (let row = 0; row < rows; row++) {
      for (let head = 0; head < heads; head++) {
        const at = row * x.stride + head * headDim;
        if (wv && rv) {
          const r = inverseRms(xv, at, headDim, eps);
          rv[row * heads + head] = r;
          for (let i = 0; i < headDim; i++) y[i] = fround(fround(xv[at + i]! * fround(r)) * wv[i]!);
        } else {
          for (let i = 0; i < headDim; i++) y[i] = xv[at + i]!;
        }
        const to = row * out.stride + head * headDim;
        for (let i = 0; i < half; i++) {
          const c = cv[pv[row]! * half + i]!;
          const s = sv[pv[row]! * half + i]!;
          ov[to + i] = fround(y[i]! * c) - fround(y[i + half]! * s);
          ov[to + half + i] = fround(y[i + half]! * c) + fround(y[i]! * s);
        }
      }
    }
  }

  normRopeBackward(operation: NormRopeBackward): void {
    const { dx, dweight, dout, x, rstd, weight, angles, rows, heads, headDim } = operation;
    const [dxv, dv, xv, cv, sv, pv] = [
      this.view(dx.data),
      this.view(dout.data),
      this.view(x.data),
      this.view(angles.cos),
      this.view(angles.sin),
      this.viewInts(angles.positions),
    ];
    const wv = weight ? this.view(weight) : undefined;
    const rv = rstd ? this.view(rstd) : undefined;
    const dwv = dweight ? this.view(dweight) : undefined;
    const half = headDim / 2;
    const dy = new Float32Array(headDim);
    const gradient = new Float32Array(headDim);
    for (let row = 0; row < rows; row++) {
      for (let head = 0; head < heads; head++) {
        const from = row * dout.stride + head * headDim;
        for (let i = 0; i < half; i++) {
          const c = cv[pv[row]! * half + i]!;
          const s = sv[pv[row]! * half + i]!;
          dy[i] = fround(dv[from + i]! * c) + fround(dv[from + half + i]! * s);
          dy[i + half] = fround(dv[from + half + i]! * c) - fround(dv[from + i]! * s);
        }
        const to = row * dx.stride + head * headDim;
        if (wv && rv) {
          const at = row * x.stride + head * headDim;
          normGradient(gradient, dwv, dy, xv.subarray(at), rv[row * heads + head]!, wv, headDim);
          dxv.set(gradient, to);
        } else {
          dxv.set(dy, to);
        }
      }
    }
  }

  swiglu(out: F32, gateUp: F32, rows: number, cols: number): void {
    const [ov, gv] = [this.view(out), this.view(gateUp)];
    for (let row = 0; row < rows; row++) {
      for (let i = 0; i < cols; i++) {
        const gate = gv[row * 2 * cols + i]!;
        const sigmoid = fround(1 / fround(1 + fround(Math.exp(-gate))));
        ov[row * cols + i] = fround(fround(gate * sigmoid) * gv[row * 2 * cols + cols + i]!);
      }
    }
  }

  swigluBackward(dgateUp: F32, dout: F32, gateUp: F32, rows: number, cols: number): void {
    const [dgv, dv, gv] = [this.view(dgateUp), this.view(dout), this.view(gateUp)];
    for (let row = 0; row < rows; row++) {
      for (let i = 0; i < cols; i++) {
        const at = row * 2 * cols + i;
        const gate = gv[at]!;
        const up = gv[at + cols]!;
        const d = dv[row * cols + i]!;
        const sigmoid = fround(1 / fround(1 + fround(Math.exp(-gate))));
        const silu = fround(gate * sigmoid);
        dgv[at + cols] = fround(d * silu);
        const slope = fround(sigmoid * fround(1 + fround(gate * fround(1 - sigmoid))));
        dgv[at] = fround(fround(d * up) * slope);
      }
    }
  }

  gatherRows(out: F32, table: Matrix, indices: I32, rows: number, cols: number): void {
    const [ov, tv, iv] = [this.view(out), this.#values(table), this.viewInts(indices)];
    for (let row = 0; row < rows; row++) {
      ov.set(tv.subarray(iv[row]! * cols, (iv[row]! + 1) * cols), row * cols);
    }
  }

  scatterRows(table: F32, x: StridedRows, indices: I32, rows: number, cols: number): void {
    const [tv, xv, iv] = [this.view(table), this.view(x.data), this.viewInts(indices)];
    for (let row = 0; row < rows; row++) {
      tv.set(xv.subarray(row * x.stride, row * x.stride + cols), iv[row]! * cols);
    }
  }

  scatterAddRows(table: F32, x: F32, indices: I32, rows: number, cols: number): void {
    const [tv, xv, iv] = [this.view(table), this.view(x), this.viewInts(indices)];
    for (let row = 0; row < rows; row++) {
      for (let i = 0; i < cols; i++) tv[iv[row]! * cols + i]! += xv[row * cols + i]!;
    }
  }

  attention({ out, logSumExp, query, key, value, offsets, shape }: Attention): void {
    const [ov, lv, qv, kv, vv, offs] = [
      this.view(out),
      this.view(logSumExp),
      this.view(query.data),
      this.view(key.data),
      this.view(value.data),
      this.viewInts(offsets),
    ];
    for (let sequence = 0; sequence + 1 < offs.length; sequence++) {
      const start = offs[sequence]!;
      for (let row = start; row < offs[sequence + 1]!; row++) {
        attendRow(
          ov,
          row * shape.heads * shape.headDim,
          lv,
          row * shape.heads,
          qv,
          row * query.stride,
          kv,
          (j) => (start + j) * key.stride,
          vv,
          (j) => (start + j) * value.stride,
          row - start + 1,
          shape,
        );
      }
    }
  }

  attentionBackward(operation: AttentionBackward): void {
    const { dquery: dq, dkey: dk, dvalue: dv, dout, query: q, key: k, value: v, shape } = operation;
    const { heads, kvHeads, headDim } = shape;
    const [dqv, dkv, dvv, dov, qv, kv, vv, ov, lv, offs] = [
      this.view(dq.data),
      this.view(dk.data),
      this.view(dv.data),
      this.view(dout),
      this.view(q.data),
      this.view(k.data),
      this.view(v.data),
      this.view(operation.out),
      this.view(operation.logSumExp),
      this.viewInts(operation.offsets),
    ];
    const scale = fround(shape.scale);
    const group = heads / kvHeads;
    for (let sequence = 0; sequence + 1 < offs.length; sequence++) {
      const start = offs[sequence]!;
      const end = offs[sequence + 1]!;
      for (let row = start; row < end; row++) {
        dqv.fill(0, row * dq.stride, row * dq.stride + heads * headDim);
        dkv.fill(0, row * dk.stride, row * dk.stride + kvHeads * headDim);
        dvv.fill(0, row * dv.stride, row * dv.stride + kvHeads * headDim);
      }
      for (let row = start; row < end; row++) {
        for (let head = 0; head < heads; head++) {
          const at = (row * heads + head) * headDim;
          const qa = row * q.stride + head * headDim;
          const kvHead = Math.floor(head / group);
          let delta = 0;
          for (let i = 0; i < headDim; i++) delta = fround(delta + fround(dov[at + i]! * ov[at + i]!));
          for (let j = start; j <= row; j++) {
            const ka = j * k.stride + kvHead * headDim;
            const va = j * v.stride + kvHead * headDim;
            const score = fround(dot(qv, qa, kv, ka, headDim) * scale);
            const p = fround(Math.exp(fround(score - lv[row * heads + head]!)));
            const dp = dot(dov, at, vv, va, headDim);
            const ds = fround(fround(p * fround(dp - delta)) * scale);
            for (let i = 0; i < headDim; i++) {
              dvv[j * dv.stride + kvHead * headDim + i]! += fround(p * dov[at + i]!);
              dqv[row * dq.stride + head * headDim + i]! += fround(ds * kv[ka + i]!);
              dkv[j * dk.stride + kvHead * headDim + i]! += fround(ds * qv[qa + i]!);
            }
          }
        }
      }
    }
  }

  rotateIntoPages(operation: RotateIntoPages): void {
    rotateOneByOne(this, operation);
  }

  attentionPaged(operation: AttentionPaged): void {
    const { out, query, rows, pagesPerRow, pageSize, shape } = operation;
    const [ov, qv, kv, vv, tv, lens] = [
      this.view(out),
      this.view(query.data),
      this.view(operation.keyPages),
      this.view(operation.valuePages),
      this.viewInts(operation.pageTables),
      this.viewInts(operation.lengths),
    ];
    const width = shape.kvHeads * shape.headDim;
    const lse = new Float32Array(shape.heads);
    for (let row = 0; row < rows; row++) {
      const storedRow = (j: number) =>
        (tv[row * pagesPerRow + Math.floor(j / pageSize)]! * pageSize + (j % pageSize)) * width;
      attendRow(
        ov,
        row * shape.heads * shape.headDim,
        lse,
        0,
        qv,
        row * query.stride,
        kv,
        storedRow,
        vv,
        storedRow,
        lens[row]!,
        shape,
      );
    }
  }

  logSoftmaxGather(operation: LogSoftmaxGather): void {
    const { logprobs, logSumExp, logits, targets, rows, vocabSize, targetsPerRow } = operation;
    const [pv, lv, xv, tv] = [
      this.view(logprobs),
      this.view(logSumExp),
      this.view(logits),
      this.viewInts(targets),
    ];
    for (let row = 0; row < rows; row++) {
      const at = row * vocabSize;
      let max = Number.NEGATIVE_INFINITY;
      for (let i = 0; i < vocabSize; i++) max = Math.max(max, xv[at + i]!);
      let sum = 0;
      for (let i = 0; i < vocabSize; i++) sum = fround(sum + fround(Math.exp(fround(xv[at + i]! - max))));
      lv[row] = fround(max + fround(Math.log(sum)));
      for (let j = 0; j < targetsPerRow; j++) {
        pv[row * targetsPerRow + j] = fround(xv[at + tv[row * targetsPerRow + j]!]! - lv[row]!);
      }
    }
  }

  logitsGradient(operation: LogitsGradient): void {
    const { logits, logSumExp, targets, coefficients, rows, vocabSize, targetsPerRow } = operation;
    const [xv, lv, tv, cv] = [
      this.view(logits),
      this.view(logSumExp),
      this.viewInts(targets),
      this.view(coefficients),
    ];
    for (let row = 0; row < rows; row++) {
      let total = 0;
      for (let j = 0; j < targetsPerRow; j++) total = fround(total + cv[row * targetsPerRow + j]!);
      for (let i = 0; i < vocabSize; i++) {
        const at = row * vocabSize + i;
        xv[at] = fround(-total * fround(Math.exp(fround(xv[at]! - lv[row]!))));
      }
      for (let j = 0; j < targetsPerRow; j++) {
        xv[row * vocabSize + tv[row * targetsPerRow + j]!]! += cv[row * targetsPerRow + j]!;
      }
    }
  }

  zero(x: F32): void {
    this.view(x).fill(0);
  }

  copy(out: F32, x: F32): void {
    this.view(out).set(this.view(x));
  }

  add(out: F32, a: F32, b: F32): void {
    const [ov, av, bv] = [this.view(out), this.view(a), this.view(b)];
    for (let i = 0; i < ov.length; i++) ov[i] = av[i]! + bv[i]!;
  }

  addScaled(y: F32, x: F32, factor: number): void {
    const [yv, xv, f] = [this.view(y), this.view(x), fround(factor)];
    for (let i = 0; i < yv.length; i++) yv[i]! += fround(f * xv[i]!);
  }

  scale(x: F32, factor: number): void {
    const [xv, f] = [this.view(x), fround(factor)];
    for (let i = 0; i < xv.length; i++) xv[i]! *= f;
  }

  async sumSquares(x: F32): Promise<number> {
    const sums = [0, 0, 0, 0];
    this.view(x).forEach((value, i) => {
      sums[i % 4]! += value * value;
    });
    return sums[0]! + sums[1]! + (sums[2]! + sums[3]!);
  }

  adamw(weights: F32, grad: F32, first: F32, second: F32, step: AdamWStep): void {
    const [wv, gv, mv, vv] = [this.view(weights), this.view(grad), this.view(first), this.view(second)];
    const scalars = adamwScalars(step);
    for (let i = 0; i < wv.length; i++) {
      const g = fround(gv[i]! * scalars.gradScale);
      const decayed = fround(wv[i]! * scalars.decay);
      const m = fround(mv[i]! + fround(fround(g - mv[i]!) * scalars.oneMinusBeta1));
      const v = fround(fround(vv[i]! * scalars.beta2) + fround(fround(g * g) * scalars.oneMinusBeta2));
      const root = fround(fround(Math.sqrt(v)) / scalars.rootCorrection2);
      const update = fround(m / fround(root + scalars.eps));
      mv[i] = m;
      vv[i] = v;
      wv[i] = fround(decayed - fround(scalars.stepSize * update));
    }
  }
}

/** Kernels for tests, exact and slow. */
export function createReferenceKernels(): ReferenceKernels {
  return new ReferenceKernels();
}

function dot(a: Float32Array, aAt: number, b: Float32Array, bAt: number, length: number): number {
  let sum = 0;
  for (let i = 0; i < length; i++) sum = fround(sum + fround(a[aAt + i]! * b[bAt + i]!));
  return sum;
}

function inverseRms(x: Float32Array, at: number, length: number, eps: number): number {
  const mean = fround(dot(x, at, x, at, length) / length);
  return fround(1 / fround(Math.sqrt(fround(mean + fround(eps)))));
}

/** d/dx of x * rstd * weight; adds the weight's own gradient where asked. */
function normGradient(
  gradient: Float32Array,
  dweight: Float32Array | undefined,
  dout: Float32Array,
  x: Float32Array,
  rstd: number,
  weight: Float32Array,
  length: number,
): void {
  let sum = 0;
  for (let i = 0; i < length; i++) {
    const normalised = fround(x[i]! * rstd);
    if (dweight) dweight[i]! += fround(dout[i]! * normalised);
    sum = fround(sum + fround(fround(dout[i]! * weight[i]!) * normalised));
  }
  const mean = fround(sum / length);
  for (let i = 0; i < length; i++) {
    const normalised = fround(x[i]! * rstd);
    gradient[i] = fround(rstd * fround(fround(dout[i]! * weight[i]!) - fround(normalised * mean)));
  }
}

function attendRow(
  out: Float32Array,
  outAt: number,
  lse: Float32Array,
  lseAt: number,
  q: Float32Array,
  qAt: number,
  k: Float32Array,
  kRow: (index: number) => number,
  v: Float32Array,
  vRow: (index: number) => number,
  length: number,
  shape: AttentionShape,
): void {
  const { heads, kvHeads, headDim } = shape;
  const scale = fround(shape.scale);
  const scores = new Float32Array(length);
  for (let head = 0; head < heads; head++) {
    const kvAt = Math.floor((head * kvHeads) / heads) * headDim;
    let max = Number.NEGATIVE_INFINITY;
    for (let j = 0; j < length; j++) {
      scores[j] = dot(q, qAt + head * headDim, k, kRow(j) + kvAt, headDim) * scale;
      max = Math.max(max, scores[j]!);
    }
    let sum = 0;
    const at = outAt + head * headDim;
    out.fill(0, at, at + headDim);
    for (let j = 0; j < length; j++) {
      const e = fround(Math.exp(fround(scores[j]! - max)));
      sum = fround(sum + e);
      const from = vRow(j) + kvAt;
      for (let i = 0; i < headDim; i++) out[at + i]! += fround(e * v[from + i]!);
    }
    const inverse = fround(1 / sum);
    for (let i = 0; i < headDim; i++) out[at + i]! *= inverse;
    lse[lseAt + head] = fround(max + fround(Math.log(sum)));
  }
}
