const QUERIES = 4096;
const [MAP_READ, COPY_SRC, COPY_DST, QUERY_RESOLVE] = [0x1, 0x4, 0x8, 0x200];

/**
 * Two timestamps around every run of a shader; each run is then a pass of its own, which costs little. Dawn rounds them to a
 * tenth of a millisecond unless its toggle `timestamp_quantization` is off.
 */
export class ShaderTimer {
  #device;
  #queue;
  #sets = [];
  #runs = [];

  constructor({ gpu, queue }) {
    this.#device = gpu.device;
    this.#queue = queue;
  }

  start() {
    this.#runs = [];
    this.#queue.onRun = ({ name }, params) => {
      const at = 2 * this.#runs.length;
      this.#runs.push({ name, params });
      const index = Math.floor(at / QUERIES);
      this.#sets[index] ??= this.#device.createQuerySet({ type: "timestamp", count: QUERIES });
      const beginning = at % QUERIES;
      return {
        querySet: this.#sets[index],
        beginningOfPassWriteIndex: beginning,
        endOfPassWriteIndex: beginning + 1,
      };
    };
  }

  stop() {
    this.#queue.onRun = undefined;
  }

  /** The runs between start and stop in their order, with their milliseconds. */
  async runs() {
    await this.#queue.done();
    const times = await this.#timestamps();
    return this.#runs.map((run, index) => ({
      ...run,
      ms: Number(times[2 * index + 1] - times[2 * index]) / 1e6,
    }));
  }

  /** For each shader of one call of `run` its name and its milliseconds in each of so many calls. */
  async time(run, turns) {
    this.start();
    for (let turn = 0; turn < turns; turn += 1) run();
    this.stop();
    const runs = await this.runs();
    const perTurn = runs.length / turns;
    return runs.slice(0, perTurn).map(({ name }, shader) => ({
      name,
      times: Array.from({ length: turns }, (_, turn) => runs[turn * perTurn + shader].ms),
    }));
  }

  async #timestamps() {
    const count = 2 * this.#runs.length;
    const bytes = 8 * QUERIES * Math.ceil(count / QUERIES);
    const device = this.#device;
    const resolved = device.createBuffer({ size: bytes, usage: QUERY_RESOLVE | COPY_SRC });
    const staging = device.createBuffer({ size: bytes, usage: MAP_READ | COPY_DST });
    const encoder = device.createCommandEncoder();
    for (let first = 0; first < count; first += QUERIES) {
      const set = this.#sets[first / QUERIES];
      encoder.resolveQuerySet(set, 0, Math.min(QUERIES, count - first), resolved, 8 * first);
    }
    encoder.copyBufferToBuffer(resolved, 0, staging, 0, bytes);
    device.queue.submit([encoder.finish()]);
    await staging.mapAsync(MAP_READ);
    const times = new BigUint64Array(staging.getMappedRange().slice(0));
    resolved.destroy();
    staging.destroy();
    return times;
  }
}
