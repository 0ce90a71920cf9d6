import { EngineLostError, type F32, type Frozen, type I32 } from "../kernels.js";
import { BINDING_ALIGNMENT, type Block, type OnDevice, onDevice } from "./device-memory.js";
import { MAX_GROUPS, MAX_PARAMS, type Shader } from "./shader.js";

const [MAP_READ, COPY_DST, UNIFORM] = [0x1, 0x8, 0x40];
const PARAM_BYTES = 4 * MAX_PARAMS;
/** Runs in one submission: few enough for the device to begin while the next ones are recorded. */
const MAX_RUNS = 48;
/** Bind groups of one shader that are kept for the next step, which mostly has the same ones. */
const MAX_BIND_GROUPS = 4096;
/** Staging buffers for downloads that are kept. */
const MAX_STAGING_BYTES = 64 << 20;

/** Arguments of a shader's run. */
export interface Run<Buffer extends string, Param extends string> {
  buffers: Record<Buffer, F32 | I32 | Frozen>;
  params: Record<Param, number>;
  /** One number is spread over x and y (`flat(group)` in the shader); what is beyond it must return. */
  workgroups: number | readonly [number, number] | readonly [number, number, number];
}

/** Work that a device was given so far; on a slow machine, or for a few rows, these counts decide the time. */
export interface QueueCounts {
  runs: number;
  submissions: number;
  pipelines: number;
  bindGroups: number;
  writtenBytes: number;
  readBytes: number;
}

/** Records runs of shaders in order, and sends them to the device in large pieces. */
export class CommandQueue {
  readonly device: GPUDevice;
  readonly #paramValues = new ArrayBuffer(MAX_RUNS * PARAM_BYTES);
  readonly #paramInts = new Uint32Array(this.#paramValues);
  readonly #paramFloats = new Float32Array(this.#paramValues);
  readonly #paramBuffer: GPUBuffer;
  readonly #prepared = new Map<string, PreparedShader>();
  readonly #staging: GPUBuffer[] = [];
  #encoder: GPUCommandEncoder | undefined;
  #pass: GPUComputePassEncoder | undefined;
  #passShader: Shader | undefined;
  #runs = 0;
  #failure: EngineLostError | undefined;
  #reportFailure: (error: EngineLostError) => void = () => {};
  /** Resolves when nothing more will come. */
  readonly failed: Promise<EngineLostError>;
  readonly counts: QueueCounts = {
    runs: 0,
    submissions: 0,
    pipelines: 0,
    bindGroups: 0,
    writtenBytes: 0,
    readBytes: 0,
  };
  /** Called with each run's shader and parameters, for measurements. */
  onRun:
    | ((shader: Shader, params: Record<string, number>) => GPUComputePassTimestampWrites | undefined)
    | undefined;

  constructor(device: GPUDevice) {
    this.device = device;
    this.#paramBuffer = device.createBuffer({ size: MAX_RUNS * PARAM_BYTES, usage: UNIFORM | COPY_DST });
    this.failed = new Promise((resolve) => {
      this.#reportFailure = resolve;
    });
  }

  /** From now on nothing that was asked for will come. */
  fail(why: string): void {
    this.#failure ??= new EngineLostError(why.trim().replace(/\.$/, ""));
    this.#reportFailure(this.#failure);
  }

  run<Buffer extends string, Param extends string>(
    shader: Shader<Buffer, Param>,
    { buffers, params, workgroups }: Run<Buffer, Param>,
  ): void {
    const [x, y = 1, z = 1] = typeof workgroups === "number" ? spread(workgroups) : workgroups;
    if (x * y * z === 0) return;
    if (this.#runs === MAX_RUNS) this.flush();
    const prepared = this.#prepare(shader);
    const slot = this.#runs * MAX_PARAMS;
    this.#runs += 1;
    this.counts.runs += 1;
    // Plain loops and numbers as keys: with one row to decode, recording takes longer than computing.
    let groups: BindGroups = prepared.groups;
    for (let index = 0; index < shader.buffers.length; index++) {
      const { name, elementBytes } = shader.buffers[index]!;
      const handle = onDevice(buffers[name]);
      const { offset, block } = handle;
      const inside = offset % BINDING_ALIGNMENT;
      if (inside % elementBytes !== 0) {
        throw new Error(`${shader.name}: ${name} is not aligned to ${elementBytes} bytes`);
      }
      this.#paramInts[slot + index] = inside / elementBytes;
      groups = next(groups, block.id * MAX_WINDOWS + (offset - inside) / BINDING_ALIGNMENT);
      groups = next(groups, windowSize(handle));
    }
    let at = slot + shader.buffers.length;
    for (let index = 0; index < shader.params.length; index++, at++) {
      const { name, type } = shader.params[index]!;
      if (type === "f32") this.#paramFloats[at] = params[name];
      else this.#paramInts[at] = params[name];
    }
    groups.group ??= this.#bind(shader, prepared, buffers);
    const pass = this.#passFor(shader, params);
    if (this.#passShader !== shader) pass.setPipeline(prepared.pipeline);
    this.#passShader = shader;
    pass.setBindGroup(0, groups.group, [slot * 4]);
    pass.dispatchWorkgroups(x, y, z);
  }

  /** Sends everything that was recorded. */
  flush(): void {
    this.#endPass();
    if (this.#runs > 0) {
      this.counts.writtenBytes += this.#runs * PARAM_BYTES;
      this.device.queue.writeBuffer(this.#paramBuffer, 0, this.#paramValues, 0, this.#runs * PARAM_BYTES);
    }
    this.#runs = 0;
    if (!this.#encoder) return;
    this.counts.submissions += 1;
    this.device.queue.submit([this.#encoder.finish()]);
    this.#encoder = undefined;
  }

  /** Groups of a block that is destroyed would keep others from being freed; those of other blocks stay. */
  forgetBindGroups(blocks: readonly Block[]): void {
    if (blocks.length === 0) return;
    const ids = new Set(blocks.map(({ id }) => id));
    for (const prepared of this.#prepared.values()) prepared.groupCount = forget(prepared.groups, ids);
  }

  /** `data` from its beginning; both in bytes that are a multiple of four. */
  write(handle: F32 | I32, data: Float32Array | Int32Array): void {
    const { block, offset } = onDevice(handle);
    if (data.length > handle.length)
      throw new RangeError(`${data.length} values for a buffer of ${handle.length}`);
    this.flush();
    this.counts.writtenBytes += data.byteLength;
    this.device.queue.writeBuffer(
      block.buffer,
      offset,
      data.buffer as ArrayBuffer,
      data.byteOffset,
      data.byteLength,
    );
  }

  async read(handle: F32 | I32): Promise<ArrayBuffer> {
    const { block, offset } = onDevice(handle);
    const bytes = 4 * handle.length;
    if (bytes === 0) return new ArrayBuffer(0);
    if (this.#failure) throw this.#failure;
    this.counts.readBytes += bytes;
    const staging = this.#stagingOf(bytes);
    this.#endPass();
    this.#encoder ??= this.device.createCommandEncoder();
    this.#encoder.copyBufferToBuffer(block.buffer, offset, staging, 0, bytes);
    this.flush();
    await this.#arrival(staging.mapAsync(MAP_READ, 0, bytes));
    const copy = staging.getMappedRange(0, bytes).slice(0);
    staging.unmap();
    if (staging.size <= MAX_STAGING_BYTES && this.#staging.length < 16) this.#staging.push(staging);
    else staging.destroy();
    return copy;
  }

  /** Everything sent so far has been done. */
  async done(): Promise<void> {
    this.flush();
    await this.#arrival(this.device.queue.onSubmittedWorkDone());
  }

  /** Waits for the device, which may be lost before or instead. */
  async #arrival(work: Promise<unknown>): Promise<void> {
    await Promise.race([work, this.failed]).catch((error: Error) => {
      this.fail(`The GPU did not answer: ${error.message}`);
    });
    if (this.#failure) throw this.#failure;
  }

  #prepare(shader: Shader): PreparedShader {
    const known = this.#prepared.get(shader.name);
    if (known) return known;
    const { device } = this;
    const layout = device.createBindGroupLayout({
      entries: [
        { binding: 0, visibility: 4, buffer: { type: "uniform", hasDynamicOffset: true } },
        ...shader.buffers.map(({ isReadOnly }, index) => ({
          binding: index + 1,
          visibility: 4,
          buffer: { type: isReadOnly ? ("read-only-storage" as const) : ("storage" as const) },
        })),
      ],
    });
    this.counts.pipelines += 1;
    const pipeline = device.createComputePipeline({
      label: shader.name,
      layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
      compute: {
        module: device.createShaderModule({ label: shader.name, code: shader.code }),
        entryPoint: "main",
      },
    });
    const prepared = { pipeline, layout, groups: {}, groupCount: 0 };
    this.#prepared.set(shader.name, prepared);
    return prepared;
  }

  #bind<Buffer extends string>(
    shader: Shader<Buffer>,
    prepared: PreparedShader,
    buffers: Record<Buffer, F32 | I32 | Frozen>,
  ): GPUBindGroup {
    if (prepared.groupCount >= MAX_BIND_GROUPS) {
      prepared.groups = {};
      prepared.groupCount = 0;
    }
    prepared.groupCount += 1;
    this.counts.bindGroups += 1;
    return this.device.createBindGroup({
      layout: prepared.layout,
      entries: [
        { binding: 0, resource: { buffer: this.#paramBuffer, size: PARAM_BYTES } },
        ...shader.buffers.map(({ name }, index) => {
          const handle = onDevice(buffers[name]);
          const offset = handle.offset - (handle.offset % BINDING_ALIGNMENT);
          return {
            binding: index + 1,
            resource: { buffer: handle.block.buffer, offset, size: windowSize(handle) },
          };
        }),
      ],
    });
  }

  #endPass(): void {
    this.#pass?.end();
    this.#pass = undefined;
    this.#passShader = undefined;
  }

  #passFor(shader: Shader, params: Record<string, number>): GPUComputePassEncoder {
    this.#encoder ??= this.device.createCommandEncoder();
    if (this.onRun) {
      const timestampWrites = this.onRun(shader, params);
      if (timestampWrites) {
        this.#endPass();
        this.#pass = this.#encoder.beginComputePass({ timestampWrites });
        return this.#pass;
      }
    }
    this.#pass ??= this.#encoder.beginComputePass();
    return this.#pass;
  }

  #stagingOf(bytes: number): GPUBuffer {
    const index = this.#staging.findIndex((buffer) => buffer.size >= bytes);
    if (index >= 0) return this.#staging.splice(index, 1)[0]!;
    const size = Math.max(4096, 2 ** Math.ceil(Math.log2(bytes)));
    return this.device.createBuffer({ size, usage: MAP_READ | COPY_DST });
  }
}

function spread(groups: number): [number, number] {
  return groups <= MAX_GROUPS ? [groups, 1] : [MAX_GROUPS, Math.ceil(groups / MAX_GROUPS)];
}

/** A shader as the device knows it. */
interface PreparedShader {
  pipeline: GPUComputePipeline;
  layout: GPUBindGroupLayout;
  groups: BindGroups;
  groupCount: number;
}

/** Bind groups by the windows that they bind, one level for each number. */
interface BindGroups {
  group?: GPUBindGroup;
  deeper?: Map<number, BindGroups>;
}

/** More than a block can have. */
const MAX_WINDOWS = 2 ** 32;

function next(groups: BindGroups, key: number): BindGroups {
  groups.deeper ??= new Map();
  let found = groups.deeper.get(key);
  if (!found) {
    found = {};
    groups.deeper.set(key, found);
  }
  return found;
}

/** Drops the groups that bind one of these blocks, and counts the others. */
function forget({ group, deeper }: BindGroups, blocks: ReadonlySet<number>): number {
  let count = group ? 1 : 0;
  for (const [key, sizes] of deeper ?? []) {
    if (blocks.has(Math.floor(key / MAX_WINDOWS))) deeper!.delete(key);
    else for (const next of sizes.deeper?.values() ?? []) count += forget(next, blocks);
  }
  return count;
}

/** Bytes from the aligned beginning of a handle to its end. */
function windowSize(handle: (F32 | I32 | Frozen) & OnDevice): number {
  const inside = handle.offset % BINDING_ALIGNMENT;
  const bytes = handle.kind === "frozen" ? handle.block.bytes - handle.offset : 4 * handle.length;
  return Math.ceil((inside + bytes) / 16) * 16;
}
