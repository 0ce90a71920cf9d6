import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { combineForwardBackwardOutputs } from "../../src/futures/combine.js";
import { file_tinker_public } from "../../src/wire/gen/tinker_public_pb.js";
import {
  DEFAULT_CLIENT_CONFIG,
  DEFAULT_CLIENT_DYNAMIC_CONFIG,
  endpoints,
  toWireJson,
} from "../../src/wire/index.js";
import { camelToSnake } from "../../src/wire/json-keys.js";
import {
  decodeForwardBackwardOutput,
  decodeForwardBackwardRequest,
  decodeSampleResponse,
  encodeForwardBackwardOutput,
  encodeSampleResponse,
} from "../../src/wire/protobuf.js";
import { estimateDatumProtoBytes } from "../../src/wire/training/byte-estimates.js";
import { encodeForwardBackwardRequest } from "../../src/wire/training/forward-backward-request-writer.js";
import { codecs } from "./codecs.js";
import { explainSkip, hasPython, Judge } from "./judge.js";
import { CASES, SEED } from "./judged.js";
import { forwardBackwardOutput, forwardBackwardRequest, sampleResponse } from "./messages.js";
import { plainOutput, plainRequest, plainSample } from "./plain.js";
import { Random, sameJson, shrink } from "./random.js";
import { writeReport } from "./report.js";
import { requests, shapes, UNTYPED_ENDPOINTS } from "./shapes.js";

explainSkip("wire.test.ts");

type Field = [name: string, number: number, type: number, isRepeated: boolean];
/** Of google.protobuf.FieldDescriptorProto. */
const REPEATED = 3;

interface Description {
  readonly version: string;
  readonly types: Record<string, { kind: "request" | "response" | "dataclass"; fields: string[] }>;
  readonly messages: Record<string, Field[]>;
  readonly enums: Record<string, [string, number][]>;
  readonly client_config: Record<string, unknown>;
  readonly dynamic_config: Record<string, unknown>;
  readonly loss_fns: string[];
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

type Read = { value?: unknown; error?: string };

/** Never written or read as JSON of its own. */
const EXPLAINED: Readonly<Record<string, string>> = {
  ParsedCheckpointTinkerPath: "made by the client from a path, never sent",
  Datum: "in ForwardBackwardRequest (protobuf) and DatumModel (JSON)",
  TensorData: "in the protobuf messages, and TensorDataModel (JSON)",
  PromptProvenanceSpan: "in ForwardBackwardRequest (protobuf)",
  SampledProvenanceSpan: "in ForwardBackwardRequest (protobuf)",
  ForwardBackwardInput: "in ForwardBackwardRequest (protobuf), and ForwardBackwardInputModel (JSON)",
  ForwardBackwardRequest: "as protobuf",
  ForwardRequest: "sent as ForwardBackwardRequest with forward_only",
  ForwardBackwardOutput: "as protobuf",
  SampleResponse: "as protobuf",
  SampledSequence: "in SampleResponse (protobuf)",
  TopkLogprobs: "in SampleResponse (protobuf)",
  PromptAltTokens: "in SampleResponse (protobuf)",
};

/** In the package's .proto file, but written and read by none of its code. */
const UNUSED_MESSAGES: Readonly<Record<string, string>> = {
  SamplingParams: "no code of the package uses it: samples are requested in JSON",
  StopStrings: "part of SamplingParams",
  StopTokens: "part of SamplingParams",
};

describe.skipIf(!hasPython)("the wire, judged by the official package", () => {
  let judge: Judge;
  let about: Description;
  const counts: Record<string, number> = {};
  let statements = 0;
  const counted = (name: string, count: number) => {
    counts[name] = (counts[name] ?? 0) + count;
  };
  const startedMs = Date.now();

  beforeAll(async () => {
    judge = new Judge();
    about = await judge.ask<Description>("describe");
  });
  afterAll(async () => {
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    writeReport("wire", {
      version: about?.version,
      seed: SEED,
      seconds: (Date.now() - startedMs) / 1000,
      counts,
      total,
      statements,
      explained: { ...EXPLAINED, ...UNUSED_MESSAGES },
    });
    await judge?.[Symbol.asyncDispose]();
  });

  it("knows every type and every field of the package", () => {
    const known = new Set([...Object.keys(codecs), ...Object.keys(EXPLAINED)]);
    expect(Object.keys(about.types).filter((name) => !known.has(name))).toEqual([]);
    expect([...known].filter((name) => !(name in about.types))).toEqual([]);
    for (const [name, make] of Object.entries(shapes)) {
      const ours = make.fields.map(camelToSnake).sort();
      // Which kind a message is follows from where it travels: our types leave it out.
      const theirs = about.types[name]!.fields.filter(
        (field) => field !== "type" || ours.includes("type"),
      ).sort();
      expect(ours, name).toEqual(theirs);
    }
    // Servers still send it to releases before 0.38.
    const { createModelViaLoadWeights: _, ...config } = DEFAULT_CLIENT_CONFIG;
    expect(toWireJson(config)).toEqual(about.client_config);
    expect(toWireJson(DEFAULT_CLIENT_DYNAMIC_CONFIG)).toEqual(about.dynamic_config);
  });

  it("has in the table of endpoints what the package's requests have", () => {
    const named = new Set<unknown>(Object.values(requests));
    const unexplained = Object.entries(endpoints).filter(
      ([name, endpoint]) => !named.has(endpoint) && !Object.hasOwn(UNTYPED_ENDPOINTS, name),
    );
    expect(unexplained.map(([name]) => name)).toEqual([]);
    for (const [name, endpoint] of Object.entries(requests)) {
      const ours = Object.keys(endpoint.request.shape).map(camelToSnake);
      const theirs = about.types[name]!.fields.filter((field) => field !== "type");
      // The two names under which the package sends its optim_params.
      const aliases = name === "OptimStepRequest" ? ["adam_params", "optimizer_params"] : [];
      expect(ours.filter((field) => !aliases.includes(field)).sort(), name).toEqual(theirs.sort());
    }
  });

  it("has the package's protobuf messages, field by field", () => {
    const byNumber = (left: Field, right: Field) => left[1] - right[1];
    const ours = file_tinker_public.messages.map(({ name, proto }) => [
      name,
      proto.field
        .map((field): Field => [field.name, field.number, field.type, field.label === REPEATED])
        .sort(byNumber),
    ]);
    const theirs = Object.entries(about.messages).map(([name, fields]) => [name, fields.sort(byNumber)]);
    expect(Object.fromEntries(ours)).toEqual(Object.fromEntries(theirs));
    expect(
      Object.fromEntries(
        file_tinker_public.enums.map((each) => [
          each.name,
          each.values.map((value) => [value.proto.name, value.number]),
        ]),
      ),
    ).toEqual(about.enums);
  });

  it("finds in the package what docs/protocol-differences.md says of it", async () => {
    const page = await readFile(new URL("../../docs/protocol-differences.md", import.meta.url), "utf8");
    const section = (title: string) => page.split(`## ${title}\n`)[1]!.split("\n## ")[0]!;
    const rows = (title: string) =>
      section(title)
        .split("\n")
        .filter((line) => line.startsWith("| "))
        .slice(1)
        .map((line) => line.split("|").map((cell) => cell.trim()));
    /** Names and paths between backticks; `{id}` and `...` stand for anything. */
    const names = (cell: string) =>
      [...cell.matchAll(/`(?:GET |POST |PUT )?(?:\.\.\.)?([^`{ ]+?)(?:\{[^`]*)?`/g)].map(
        (match) => match[1]!,
      );
    const present = rows("New since the notes").flatMap((row) => names(row[2]!));
    const gone = rows("Gone from the package, kept here")
      .flatMap((row) => names(row[1]!))
      .filter((name) => name !== "/forward");
    expect(present.length).toBeGreaterThan(30);
    const found = await judge.ask<boolean[]>("mentions", { texts: [...present, ...gone] });
    const wrong = [...present, ...gone].filter((_, index) => found[index] !== index < present.length);
    expect(wrong).toEqual([]);
    if (!page.includes(about.version))
      console.log(`docs/protocol-differences.md does not speak of ${about.version} yet.`);
    statements = present.length + gone.length;
  });

  it.each(Object.keys(codecs))("%s: what we write, the package reads", async (name) => {
    const { make, write, read } = codecs[name]!;
    const random = new Random(SEED);
    const values = random.times(CASES, make);
    const bodies = values.map((value) => JSON.stringify(write(value)));
    const answers = await judge.ask<Read[]>("read", { type: name, bodies });
    for (const [index, answer] of answers.entries()) {
      const body: unknown = JSON.parse(bodies[index]!);
      if (sameJson(answer.value, body) && sameJson(write(read(body)), body)) continue;
      const fails = async (candidate: unknown) => {
        const [again] = await judge.ask<Read[]>("read", { type: name, bodies: [JSON.stringify(candidate)] });
        return answer.error === undefined
          ? again!.error === undefined && !sameJson(again!.value, candidate)
          : again!.error?.split("\n")[1] === answer.error.split("\n")[1];
      };
      const smallest = (await fails(body)) ? await shrink(body, fails) : body;
      throw new Error(
        `seed ${SEED}, case ${index}: ${JSON.stringify(smallest)} is ${answer.error ?? `read as ${JSON.stringify(answer.value)}; written again ${JSON.stringify(write(read(body)))}`}`,
      );
    }
    counted(name, CASES);
  });

  it.each(Object.keys(codecs))("%s: what the package writes, we read and write back", async (name) => {
    const { write, read } = codecs[name]!;
    const bodies = await judge.ask<string[]>("generate", { type: name, seed: SEED, count: CASES });
    const again = (body: string) => JSON.stringify(write(read(JSON.parse(body))));
    const failures = await judge.ask<[number, string][]>("compare", {
      type: name,
      bodies: bodies.map(again),
    });
    if (failures.length > 0) {
      const [index, message] = failures[0]!;
      const fails = async (candidate: unknown) => {
        const body = JSON.stringify(candidate);
        let ours: string;
        try {
          ours = again(body);
        } catch {
          return false;
        }
        const [before, after] = await judge.ask<Read[]>("read", {
          type: name,
          bodies: [body, ours],
          full: true,
        });
        return before!.error === undefined && !sameJson(before!.value, after!.value);
      };
      const smallest = await shrink(JSON.parse(bodies[index]!), fails);
      throw new Error(`seed ${SEED}, case ${index}: ${JSON.stringify(smallest)}\n${message}`);
    }
    counted(name, CASES);
  });

  it("ForwardBackwardRequest: our bytes are the package's bytes", async () => {
    const random = new Random(SEED);
    const requests = random.times(2 * CASES, forwardBackwardRequest("proto"));
    const values = requests.map(plainRequest);
    const theirs = await judge.ask<[string, number[]][]>("encode_requests", { values });
    for (const [index, request] of requests.entries()) {
      const [bytes, estimates] = theirs[index]!;
      const ours = base64(encodeForwardBackwardRequest(request));
      if (ours !== bytes)
        throw new Error(
          smallestOf(
            index,
            values,
            (each) =>
              Buffer.from(encodeForwardBackwardRequest(requests[each]!)).toString("base64") !==
              theirs[each]![0],
          ),
        );
      expect(request.data.map(estimateDatumProtoBytes), `estimates of case ${index}`).toEqual(estimates);
    }
    counted("ForwardBackwardRequest (protobuf)", requests.length);
  });

  it("ForwardBackwardRequest: the package's bytes, read and written by us, are the same", async () => {
    const made = await judge.ask<[string, null][]>("generate_messages", {
      type: "ForwardBackwardRequest",
      seed: SEED,
      count: 2 * CASES,
    });
    const again = ([bytes]: [string, null]) =>
      Buffer.from(
        encodeForwardBackwardRequest(decodeForwardBackwardRequest(Buffer.from(bytes, "base64"))),
      ).toString("base64");
    const wrong = made
      .filter((each) => again(each) !== each[0])
      .sort((left, right) => left[0].length - right[0].length);
    if (wrong.length > 0)
      throw new Error(
        `seed ${SEED}: ${wrong.length} differ; the smallest is ${wrong[0]![0]}, which we write as ${again(wrong[0]!)}`,
      );
    counted("ForwardBackwardRequest (protobuf)", made.length);
  });

  const responses = [
    ["SampleResponse", sampleResponse, encodeSampleResponse, decodeSampleResponse, plainSample],
    [
      "ForwardBackwardOutput",
      forwardBackwardOutput,
      encodeForwardBackwardOutput,
      decodeForwardBackwardOutput,
      plainOutput,
    ],
  ] as const;

  it.each(responses)(
    "%s: what our server writes, the package reads",
    async (type, make, encode, _, plain) => {
      const random = new Random(SEED);
      const values = random.times<never>(2 * CASES, make as never);
      const bodies = values.map((value) => Buffer.from(encode(value)).toString("base64"));
      const answers = await judge.ask<[unknown, boolean][]>("read_messages", { type, bodies });
      const wrong = answers
        .map(([value, isCanonical], index) => ({ index, value, isCanonical, ours: plain(values[index]!) }))
        .filter(({ value, isCanonical, ours }) => !isCanonical || !sameJson(value, ours))
        .sort((left, right) => bodies[left.index]!.length - bodies[right.index]!.length);
      expect(wrong[0], `seed ${SEED}: ${wrong.length} differ; the smallest:`).toBeUndefined();
      counted(`${type} (protobuf)`, values.length);
    },
  );

  it.each(responses)(
    "%s: what a server writes, our client reads as the package does",
    async (type, _, encode, decode, plain) => {
      const made = await judge.ask<[string, unknown][]>("generate_messages", {
        type,
        seed: SEED,
        count: 2 * CASES,
      });
      const wrong = made
        .map(([bytes, theirs], index) => ({
          index,
          bytes,
          theirs,
          ours: plain(decode(Buffer.from(bytes, "base64")) as never),
        }))
        .filter(({ theirs, ours }) => !sameJson(theirs, ours))
        .sort((left, right) => left.bytes.length - right.bytes.length);
      expect(wrong[0], `seed ${SEED}: ${wrong.length} differ; the smallest:`).toBeUndefined();
      const again = made.map(([bytes]) => base64(encode(decode(Buffer.from(bytes, "base64")) as never)));
      const read = await judge.ask<[unknown, boolean][]>("read_messages", { type, bodies: again });
      expect(read.map(([value]) => value)).toEqual(made.map(([, theirs]) => theirs));
      counted(`${type} (protobuf)`, made.length);
    },
  );

  it("results of chunks are combined as the package combines them", async () => {
    const made = await judge.ask<[string[], unknown][]>("combine", { seed: SEED, count: CASES });
    for (const [index, [parts, theirs]] of made.entries()) {
      // The package divides by zero where no chunk has a datum.
      if (theirs === null) continue;
      const ours = plainOutput(
        combineForwardBackwardOutputs(
          parts.map((part) => decodeForwardBackwardOutput(Buffer.from(part, "base64"))),
        ),
      );
      expect(ours, `seed ${SEED + index}`).toEqual(theirs);
    }
    counted("combined ForwardBackwardOutputs", made.length);
  });

  function smallestOf(
    index: number,
    values: readonly unknown[],
    isWrong: (index: number) => boolean,
  ): string {
    const wrong = [...values.keys()]
      .filter(isWrong)
      .sort((left, right) => JSON.stringify(values[left]).length - JSON.stringify(values[right]).length);
    return `seed ${SEED}: ${wrong.length} differ, the first is case ${index}; the smallest is case ${wrong[0]}: ${JSON.stringify(values[wrong[0]!])}`;
  }
});
