import type { AnswerShape, MembersShape } from "../../../../renderers/answer-shape.js";
import type { JsonConstraint } from "../../engine.js";
import { choice, type GrammarNode, literal, optionalRule, repeat, sequence } from "./grammar.js";
import { rawText, textWithout } from "./raw-text.js";
import { buildSteps, checkConstraintSize, SchemaReader, schemaGrammar } from "./schema-grammar.js";
import { type Part, type Schema, schemaAt } from "./schema-parts.js";
import { refuse, type Steps, TOOL_PLACE } from "./steps.js";
import { anyObject } from "./value-grammar.js";

/** Control tokens by their text. */
export type AddedTokens = ReadonlyMap<string, number>;

/** The grammar of all answers that the sampler may write; a shape that cannot be guaranteed is refused. */
export function constraintGrammar(constraint: JsonConstraint, added: AddedTokens = new Map()): GrammarNode {
  checkConstraintSize(constraint);
  switch (constraint.type) {
    case "json_object":
      return anyObject;
    case "json_schema":
      return schemaGrammar(constraint.schema, buildSteps());
    case "shape":
      return new ShapeReader(added).node(constraint.shape);
    default:
      return constraint satisfies never;
  }
}

/** Steps for each character of a text, and for each part of a shape. */
const PART_SIZE = 4;

/** Turns a shape into grammar. Parts that stand in it several times, as the same object, are built once. */
class ShapeReader {
  readonly #added: AddedTokens;
  readonly #longestAdded: number;
  readonly #steps: Steps = buildSteps();
  readonly #nodes = new Map<AnswerShape, GrammarNode>();
  readonly #signs = new Map<string, GrammarNode>();
  readonly #texts = new Map<string, GrammarNode>();

  constructor(added: AddedTokens) {
    this.#added = added;
    let longest = 0;
    for (const text of added.keys()) longest = Math.max(longest, text.length);
    this.#longestAdded = longest;
  }

  node(shape: AnswerShape): GrammarNode {
    const known = this.#nodes.get(shape);
    if (known !== undefined) return known;
    this.#steps.take(PART_SIZE);
    const node = this.#build(shape);
    this.#nodes.set(shape, node);
    return node;
  }

  #build(shape: AnswerShape): GrammarNode {
    switch (shape.type) {
      case "sign":
        return this.#sign(shape.text);
      case "plain":
        return this.#plain(shape.text);
      case "json":
        return shape.schema === undefined
          ? anyObject
          : schemaGrammar(shape.schema, this.#steps, placeOf(shape.tool));
      case "text":
        return this.#text(shape.without);
      case "members":
        return this.#members(shape);
      case "sequence":
        return sequence(...shape.parts.map((part) => this.node(part)));
      case "choice":
        return choice(...shape.options.map((option) => this.node(option)));
      case "repeat":
        return repeat(this.node(shape.item), 0, shape.max);
      default:
        return shape satisfies never;
    }
  }

  #plain(text: string): GrammarNode {
    this.#steps.take(text.length);
    return literal(text);
  }

  /** Control tokens as such, and the text between them. */
  #sign(text: string): GrammarNode {
    let node = this.#signs.get(text);
    if (node === undefined) {
      node = this.#readSign(text);
      this.#signs.set(text, node);
    }
    return node;
  }

  #readSign(text: string): GrammarNode {
    this.#steps.take(text.length);
    const parts: GrammarNode[] = [];
    let position = 0;
    for (let at = 0; at < text.length; ) {
      const found = this.#addedAt(text, at);
      if (found === undefined) {
        at += 1;
        continue;
      }
      if (at > position) parts.push(literal(text.slice(position, at)));
      parts.push({ kind: "token", token: this.#added.get(found)! });
      at += found.length;
      position = at;
    }
    if (position < text.length) parts.push(literal(text.slice(position)));
    return sequence(...parts);
  }

  #addedAt(text: string, at: number): string | undefined {
    for (let end = Math.min(text.length, at + this.#longestAdded); end > at; end -= 1)
      if (this.#added.has(text.slice(at, end))) return text.slice(at, end);
    return undefined;
  }

  #text(without: readonly string[]): GrammarNode {
    const key = JSON.stringify(without);
    let node = this.#texts.get(key);
    if (node === undefined) {
      node = textWithout(without, (count) => this.#steps.take(count));
      this.#texts.set(key, node);
    }
    return node;
  }

  #members(shape: MembersShape): GrammarNode {
    const place = placeOf(shape.tool);
    const schema = schemaAt(shape.schema, place);
    const reader = new SchemaReader(schema, this.#steps);
    const objects = reader
      .ways(schema, place)
      .filter(({ types }) => types === undefined || types.includes("object"));
    return choice(...objects.map((part) => this.#object(shape, part, place, reader)));
  }

  /** Members in the order in which they are declared; those that are not required may be left out. */
  #object(shape: MembersShape, part: Part, place: string, reader: SchemaReader): GrammarNode {
    const { properties, required = new Set<string>(), additionalProperties = true } = part;
    const declared = new Map(properties ?? []);
    for (const name of required) if (!declared.has(name)) declared.set(name, additionalProperties);
    const { minProperties = 0, maxProperties = declared.size } = part.numbers;
    if (minProperties > required.size)
      refuse(place, `"minProperties" is supported up to the number of required properties here`);
    if (maxProperties < declared.size)
      refuse(place, `"maxProperties" is supported from the number of declared properties on`);
    let named = choice();
    let after = sequence();
    let isEndAllowed = true;
    for (const [name, schemaOfMember] of [...declared].reverse()) {
      const member = sequence(this.#member(shape, name, schemaOfMember, place, reader), after);
      isEndAllowed &&= !required.has(name);
      named = required.has(name) ? member : choice(member, named);
      const following = sequence(this.#sign(shape.separator), named);
      after = isEndAllowed ? optionalRule(following) : following;
    }
    return isEndAllowed ? optionalRule(named) : named;
  }

  #member(
    shape: MembersShape,
    name: string,
    schema: Schema,
    place: string,
    reader: SchemaReader,
  ): GrammarNode {
    const path = `${place}/properties/${name}`;
    const isText = shape.texts.includes(name);
    const value = isText
      ? choice(...reader.ways(schema, path).map((part) => this.#textValue(shape, part, path)))
      : reader.value(schema, path, 1);
    return sequence(
      this.#sign(shape.before),
      this.#plain(name),
      this.#sign(isText ? shape.asText : shape.asJson),
      value,
      this.#sign(shape.behind),
    );
  }

  #textValue({ without }: MembersShape, part: Part, path: string): GrammarNode {
    if (part.types !== undefined && !part.types.includes("string")) return choice();
    const { values } = part;
    if (values !== undefined) {
      const texts = values.filter((value) => typeof value === "string");
      return choice(...texts.map((text) => this.#plain(text)));
    }
    const { minLength, maxLength } = part.numbers;
    const isFree = [part.pattern, part.format, minLength, maxLength].every((each) => each === undefined);
    return isFree ? this.#text(without) : rawText(part, path, (count) => this.#steps.take(count, path));
  }
}

const placeOf = (tool: string | undefined): string => (tool === undefined ? "#" : `${TOOL_PLACE}${tool}, #`);
