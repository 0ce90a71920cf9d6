/** Summary of the values observed under one name: count, sum and quantiles. */
export interface HistogramSummary {
  count: number;
  sum: number;
  min: number;
  max: number;
  p50: number;
  p95: number;
  p99: number;
}

/** Every quantile is within this fraction of a value that was really observed at that rank. */
export const RELATIVE_ERROR = 0.01;

const GROWTH = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR);
const LOG_GROWTH = Math.log(GROWTH);
const SMALLEST = 1e-6;
const LARGEST = 1e15;

/**
 * A histogram with geometric buckets: memory depends on the range of the values (about 2,400 buckets at
 * the very most), never on how many were observed.
 */
export class Histogram {
  #buckets = new Map<number, number>();
  #zeroCount = 0;
  #count = 0;
  #sum = 0;
  #min = Number.POSITIVE_INFINITY;
  #max = Number.NEGATIVE_INFINITY;

  /** Counts one value; negative and non-finite values say nothing about durations or sizes and are ignored. */
  observe(value: number): void {
    if (!Number.isFinite(value) || value < 0) return;
    this.#count += 1;
    this.#sum += value;
    this.#min = Math.min(this.#min, value);
    this.#max = Math.max(this.#max, value);
    if (value < SMALLEST) {
      this.#zeroCount += 1;
      return;
    }
    const bucket = Math.ceil(Math.log(Math.min(value, LARGEST)) / LOG_GROWTH);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + 1);
  }

  get bucketCount(): number {
    return this.#buckets.size;
  }

  summary(): HistogramSummary {
    if (this.#count === 0) return { count: 0, sum: 0, min: 0, max: 0, p50: 0, p95: 0, p99: 0 };
    const [p50 = 0, p95 = 0, p99 = 0] = this.#quantiles([0.5, 0.95, 0.99]);
    return { count: this.#count, sum: this.#sum, min: this.#min, max: this.#max, p50, p95, p99 };
  }

  #quantiles(ascending: readonly number[]): number[] {
    const buckets = [...this.#buckets].sort(([left], [right]) => left - right);
    let position = -1;
    let seen = this.#zeroCount;
    let estimate = 0;
    return ascending.map((quantile) => {
      const rank = Math.max(1, Math.ceil(quantile * this.#count));
      while (seen < rank) {
        position += 1;
        const [bucket, count] = buckets[position]!;
        seen += count;
        estimate = (2 * GROWTH ** bucket) / (GROWTH + 1);
      }
      return Math.min(this.#max, Math.max(this.#min, estimate));
    });
  }
}
