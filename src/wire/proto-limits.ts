import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { TinkerError, ValidationError } from "../errors.js";

/** How much a message may hold, in all of its parts together. */
export interface ProtoLimits {
  /** Fields of every kind; each number of a list is one. */
  readonly fields: number;
  /** Fields below one field of the outermost message. */
  readonly fieldsOfOne: number;
  /** Bytes of one text. */
  readonly textBytes: number;
  /** Messages of one kind, by the name of the kind, such as `Datum`. */
  readonly messages: Readonly<Record<string, number>>;
}

/**
 * Refuses a message with too many fields, before its decoder makes an object of every two bytes. Walks the bytes once
 * and keeps nothing of them. What the decoder would read otherwise than this walk (another wire type than declared, a
 * part that ends after its whole, groups) is refused too: what was counted is what is read.
 */
export function checkProtoLimits(schema: DescMessage, bytes: Uint8Array, limits: ProtoLimits): void {
  const reader = new BinaryReader(bytes);
  const messages = new Map<string, number>();
  let fields = 0;
  let fieldsBefore = 0;

  function count(path: string): void {
    fields += 1;
    if (fields > limits.fields)
      throw new ValidationError(
        path,
        `${path}: one request holds at most ${limits.fields} fields of all kinds`,
      );
    if (fields - fieldsBefore > limits.fieldsOfOne)
      throw new ValidationError(
        path,
        `${path}: one element holds at most ${limits.fieldsOfOne} fields of all kinds`,
      );
  }

  function walk(layout: Layout, end: number, path: string): void {
    const { kind } = layout;
    const before = messages.get(kind) ?? 0;
    const most = limits.messages[kind] ?? Number.POSITIVE_INFINITY;
    if (before >= most)
      throw new ValidationError(path, `${path}: one request holds at most ${most}; send several requests`);
    messages.set(kind, before + 1);
    while (reader.pos < end) {
      const [number, wireType] = reader.tag();
      const field = layout.fields.get(number);
      const name = field?.name ?? `field ${number}`;
      const place = path === "" ? name : `${path}.${name}`;
      if (path === "") fieldsBefore = fields;
      count(place);
      if (wireType === WireType.StartGroup || (field === undefined && layout.isEntry))
        throw new TinkerError(`${place} is not part of a ${kind}`);
      if (wireType === WireType.LengthDelimited) readPart(field, end, place);
      else if (field !== undefined && field.wireType !== wireType)
        throw new TinkerError(`${place} has the wire type ${wireType}, expected ${field.wireType}`);
      else reader.skip(wireType);
      if (reader.pos > end) throw new TinkerError(`${place} is longer than what it is part of`);
    }
  }

  function readPart(field: FieldLayout | undefined, end: number, place: string): void {
    const length = reader.uint32();
    const partEnd = reader.pos + length;
    if (partEnd > end) throw new TinkerError(`${place} is longer than what it is part of`);
    if (field?.message !== undefined) walk(field.message, partEnd, place);
    else if (field?.isText === true && length > limits.textBytes)
      throw new ValidationError(place, `${place} has ${length} bytes; at most ${limits.textBytes} are read`);
    else if (field?.isPacked === true) {
      while (reader.pos < partEnd) {
        count(place);
        reader.skip(field.wireType);
      }
      if (reader.pos > partEnd) throw new TinkerError(`${place} ends within a number`);
    } else if (field !== undefined && field.wireType !== WireType.LengthDelimited)
      throw new TinkerError(`${place} has the wire type 2, expected ${field.wireType}`);
    reader.pos = partEnd;
  }

  walk(layoutOf(schema), bytes.length, "");
}

/** The parts of a message type that the walk needs. */
interface Layout {
  readonly kind: string;
  /** True for an entry of a map, in which the decoder reads only key and value. */
  readonly isEntry: boolean;
  readonly fields: ReadonlyMap<number, FieldLayout>;
}

interface FieldLayout {
  readonly name: string;
  readonly wireType: WireType;
  readonly isText: boolean;
  /** A list of numbers, which may come packed or one by one. */
  readonly isPacked: boolean;
  readonly message: Layout | undefined;
}

const layouts = new WeakMap<DescMessage, Layout>();

function layoutOf(schema: DescMessage): Layout {
  let layout = layouts.get(schema);
  if (layout === undefined) {
    const fields = schema.fields.map((field) => [field.number, fieldLayout(field)] as const);
    layout = { kind: schema.name, isEntry: false, fields: new Map(fields) };
    layouts.set(schema, layout);
  }
  return layout;
}

function fieldLayout(field: DescField): FieldLayout {
  const { localName: name } = field;
  const isList = field.fieldKind === "list";
  if (field.fieldKind !== "map")
    return valueLayout(name, field.message, field.scalar ?? ScalarType.INT32, isList);
  const entry = new Map([
    [1, valueLayout("key", undefined, field.mapKey, false)],
    [2, valueLayout("value", field.message, field.scalar ?? ScalarType.INT32, false)],
  ]);
  const message: Layout = { kind: `${field.parent.name}.${name}`, isEntry: true, fields: entry };
  return { name, wireType: WireType.LengthDelimited, isText: false, isPacked: false, message };
}

/** Enums travel as int32. */
function valueLayout(
  name: string,
  schema: DescMessage | undefined,
  scalar: ScalarType,
  isList: boolean,
): FieldLayout {
  const wireType = schema === undefined ? wireTypeOf(scalar) : WireType.LengthDelimited;
  return {
    name,
    wireType,
    isText: schema === undefined && scalar === ScalarType.STRING,
    isPacked: isList && wireType !== WireType.LengthDelimited,
    message: schema === undefined ? undefined : layoutOf(schema),
  };
}

function wireTypeOf(scalar: ScalarType): WireType {
  switch (scalar) {
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return WireType.LengthDelimited;
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return WireType.Bit64;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return WireType.Bit32;
    default:
      return WireType.Varint;
  }
}
