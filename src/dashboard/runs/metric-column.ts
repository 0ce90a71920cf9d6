/** Numbers, in memory that grows. */
export class Numbers {
  #items = new Float64Array(64);
  length = 0;

  push(value: number): void {
    if (this.length === this.#items.length) {
      const grown = new Float64Array(this.length * 2);
      grown.set(this.#items);
      this.#items = grown;
    }
    this.#items[this.length] = value;
    this.length += 1;
  }

  at(index: number): number {
    return this.#items[index]!;
  }

  /** The numbers themselves, for loops over many; until the next one comes. */
  get items(): Float64Array {
    return this.#items;
  }
}

/** The values of one metric with the lines they stand in. */
export class MetricColumn {
  readonly values = new Numbers();
  notFinite = 0;
  firstNotFiniteStep: number | undefined;
  min = Number.POSITIVE_INFINITY;
  max = Number.NEGATIVE_INFINITY;
  #firstRow = 0;
  /** Only where a line between the first and the last does not have the metric. */
  #rows: Numbers | undefined;

  get length(): number {
    return this.values.length;
  }

  /** The line of a value. */
  rowAt(place: number): number {
    return this.#rows === undefined ? this.#firstRow + place : this.#rows.at(place);
  }

  push(row: number, value: number, step: number): void {
    if (this.length === 0) this.#firstRow = row;
    if (this.#rows === undefined && row !== this.#firstRow + this.length) {
      this.#rows = new Numbers();
      for (let place = 0; place < this.length; place += 1) this.#rows.push(this.#firstRow + place);
    }
    this.#rows?.push(row);
    this.values.push(value);
    if (!Number.isFinite(value)) {
      this.notFinite += 1;
      this.firstNotFiniteStep ??= step;
    } else {
      if (value < this.min) this.min = value;
      if (value > this.max) this.max = value;
    }
  }
}
