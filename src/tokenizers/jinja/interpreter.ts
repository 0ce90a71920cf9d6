import { Tuple } from "../python-json.js";
import { Budget } from "./budget.js";
import { applyFilter, applyTest, contains } from "./filters.js";
import { attributeOf, formatPercent, itemOf, sliceOf } from "./methods.js";
import { ARGUMENTS_SIGN, type Node, type ParsedTemplate } from "./parse.js";
import {
  type Callable,
  compare,
  float,
  isEqual,
  isInteger,
  isTrue,
  itemsIn,
  Namespace,
  numberOf,
  SafeText,
  toText,
  typeName,
  type Value,
} from "./values.js";

/** Variables, and those of the scope around. */
class Scope {
  readonly #variables: Map<string, Value>;
  readonly #outer: Scope | undefined;

  constructor(outer?: Scope, variables: Iterable<readonly [string, Value]> = []) {
    this.#outer = outer;
    this.#variables = new Map(variables);
  }

  get(name: string): Value {
    if (this.#variables.has(name)) return this.#variables.get(name);
    return this.#outer?.get(name);
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }
}

/** How a block ended early, within a loop. */
type LoopExit = "break" | "continue" | undefined;

/** Text that a block writes, counted as it grows. */
class Output {
  readonly #budget: Budget;
  readonly #parts: string[] = [];
  #length = 0;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  write(text: string): void {
    this.#length += text.length;
    this.#budget.checkLength(this.#length);
    this.#parts.push(text);
  }

  get text(): string {
    return this.#parts.join("");
  }
}

/**
 * Writes the text of a template as Python's Jinja does, of which the parser's own interpreter differs in too much: it prints
 * None and lists otherwise, compares lists by identity, has `strip` without characters and few filters.
 */
export function renderTemplate(
  template: ParsedTemplate,
  variables: Iterable<readonly [string, Value]>,
): string {
  return new Interpreter(template.testArguments).run(template.body, new Scope(undefined, variables));
}

class Interpreter {
  readonly #budget = new Budget();
  readonly #testArguments: readonly Node[];

  constructor(testArguments: readonly Node[]) {
    this.#testArguments = testArguments;
  }

  run(body: readonly Node[], variables: Scope): string {
    const functions: readonly (readonly [string, Callable])[] = [
      [
        "namespace",
        (args, named) =>
          new Namespace([...(args[0] instanceof Map ? (args[0] as Map<string, Value>) : []), ...named]),
      ],
      ["dict", (args, named) => new Map([...(args[0] instanceof Map ? args[0] : []), ...named])],
      ["range", (args) => this.#range(args)],
    ];
    const globals = functions.filter(([name]) => variables.get(name) === undefined);
    return this.#text(body, new Scope(variables, globals));
  }

  #text(body: readonly Node[], scope: Scope): string {
    const output = new Output(this.#budget);
    this.#block(body, scope, output);
    return output.text;
  }

  #block(body: readonly Node[], scope: Scope, output: Output): LoopExit {
    for (const statement of body) {
      const exit = this.#statement(statement, scope, output);
      if (exit !== undefined) return exit;
    }
    return undefined;
  }

  #statement(node: Node, scope: Scope, output: Output): LoopExit {
    this.#budget.step();
    switch (node.type) {
      case "Comment":
        return undefined;
      case "Break":
        return "break";
      case "Continue":
        return "continue";
      case "Set":
        this.#set(node, scope);
        return undefined;
      case "If":
        return this.#block(
          (isTrue(this.#value(node["test"], scope)) ? node.body : node["alternate"]) as readonly Node[],
          scope,
          output,
        );
      case "For":
        this.#for(node, scope, output);
        return undefined;
      case "Macro": {
        const name = (node["name"] as Node).value as string;
        scope.set(name, this.#macro(node["args"] as readonly Node[], node.body!, scope));
        return undefined;
      }
      case "CallStatement": {
        const caller = this.#macro((node["callerArgs"] as readonly Node[] | null) ?? [], node.body!, scope);
        output.write(toText(this.#call(node["call"] as Node, scope, [["caller", caller]]), this.#budget));
        return undefined;
      }
      case "FilterStatement":
        output.write(
          toText(
            this.#filter(node["filter"] as Node, this.#text(node.body!, new Scope(scope)), scope),
            this.#budget,
          ),
        );
        return undefined;
      default:
        output.write(toText(this.#value(node, scope), this.#budget));
        return undefined;
    }
  }

  #set(node: Node, scope: Scope): void {
    const value = node.value ? this.#value(node.value, scope) : this.#text(node.body!, new Scope(scope));
    const assignee = node["assignee"] as Node;
    if (assignee.type !== "MemberExpression") {
      this.#assign(assignee, value, scope);
      return;
    }
    const object = this.#value(assignee["object"], scope);
    if (!(object instanceof Namespace)) throw new Error("cannot assign attribute on non-namespace object");
    object.fields.set((assignee["property"] as Node).value as string, value);
  }

  #assign(target: Node, value: Value, scope: Scope): void {
    if (target.type === "Identifier") {
      scope.set(target.value as string, value);
      return;
    }
    if (target.type !== "TupleLiteral") throw new Error("cannot assign to this expression");
    const targets = target.value as readonly Node[];
    const items = itemsIn(value, this.#budget);
    if (items.length !== targets.length)
      throw new Error(`cannot unpack ${items.length} values into ${targets.length} names`);
    for (const [index, each] of targets.entries()) this.#assign(each, items[index], scope);
  }

  #for(node: Node, scope: Scope, output: Output): void {
    const { iterable, loopvar } = node as Node & { iterable: Node; loopvar: Node };
    const isFiltered = iterable.type === "SelectExpression";
    const all = itemsIn(this.#value(isFiltered ? iterable["lhs"] : iterable, scope), this.#budget);
    const within = (item: Value) => {
      const inner = new Scope(scope);
      this.#assign(loopvar, item, inner);
      return inner;
    };
    const items = isFiltered
      ? all.filter((item) => isTrue(this.#value(iterable["test"], within(item))))
      : all;
    for (const [index, item] of items.entries()) {
      this.#budget.step();
      const inner = within(item);
      inner.set("loop", this.#loop(items, index));
      if (this.#block(node.body!, inner, output) === "break") break;
    }
    if (items.length === 0) this.#block(node["defaultBlock"] as readonly Node[], scope, output);
  }

  #loop(items: readonly Value[], index: number): Namespace {
    const { length } = items;
    return new Namespace([
      ["index", index + 1],
      ["index0", index],
      ["revindex", length - index],
      ["revindex0", length - index - 1],
      ["first", index === 0],
      ["last", index === length - 1],
      ["length", length],
      ["previtem", items[index - 1]],
      ["nextitem", items[index + 1]],
      ["cycle", (args: readonly Value[]) => args[index % args.length]],
    ]);
  }

  #macro(parameters: readonly Node[], body: readonly Node[], outer: Scope): Callable {
    return (args, named) => {
      const scope = new Scope(outer);
      const left = new Map(named);
      for (const [index, parameter] of parameters.entries()) {
        const name = ((parameter["key"] as Node | undefined) ?? parameter).value as string;
        const isGiven = index < args.length || left.has(name);
        const otherwise = () => (parameter["key"] ? this.#value(parameter.value, scope) : undefined);
        scope.set(name, isGiven ? (index < args.length ? args[index] : left.get(name)) : otherwise());
        left.delete(name);
      }
      scope.set("varargs", Tuple.from(args.slice(parameters.length)));
      scope.set("caller", left.get("caller"));
      left.delete("caller");
      scope.set("kwargs", left);
      return this.#text(body, scope);
    };
  }

  #call(node: Node, scope: Scope, more: readonly (readonly [string, Value])[] = []): Value {
    const callee = this.#value(node["callee"], scope);
    if (typeof callee !== "function") throw new Error(`'${typeName(callee)}' object is not callable`);
    const [args, named] = this.#arguments(node["args"] as readonly Node[], scope);
    return (callee as Callable)(args, new Map([...named, ...more]));
  }

  #arguments(nodes: readonly Node[], scope: Scope): [args: Value[], named: Map<string, Value>] {
    const args: Value[] = [];
    const named = new Map<string, Value>();
    for (const node of nodes) {
      switch (node.type) {
        case "KeywordArgumentExpression":
          named.set((node["key"] as Node).value as string, this.#value(node.value, scope));
          break;
        case "SpreadExpression":
          args.push(...itemsIn(this.#value(node["argument"], scope), this.#budget));
          break;
        case "KeywordSpreadExpression":
          for (const [key, value] of this.#value(node["argument"], scope) as Map<string, Value>)
            named.set(key, value);
          break;
        default:
          args.push(this.#value(node, scope));
      }
    }
    return [args, named];
  }

  #filter(node: Node, value: Value, scope: Scope): Value {
    const isCall = node.type === "CallExpression";
    const name = (isCall ? (node["callee"] as Node) : node).value as string;
    const [args, named] = isCall
      ? this.#arguments(node["args"] as readonly Node[], scope)
      : [[], new Map<string, Value>()];
    return applyFilter(name, value, args, named, this.#budget);
  }

  #test(node: Node, scope: Scope): boolean {
    const [name, place] = ((node["test"] as Node).value as string).split(ARGUMENTS_SIGN);
    const args =
      place === undefined ? [] : (this.#value(this.#testArguments[Number(place)], scope) as readonly Value[]);
    return applyTest(name!, this.#value(node["operand"], scope), args, this.#budget) !== node["negate"];
  }

  #value(given: unknown, scope: Scope): Value {
    const value = this.#evaluate(given as Node, scope);
    this.#budget.step();
    if (typeof value === "string") this.#budget.characters(value.length);
    return value;
  }

  #evaluate(node: Node, scope: Scope): Value {
    switch (node.type) {
      case "StringLiteral":
      case "IntegerLiteral":
        return node.value;
      case "FloatLiteral":
        return float(node.value as number);
      case "ArrayLiteral":
        return (node.value as readonly Node[]).map((item) => this.#value(item, scope));
      case "TupleLiteral":
        return Tuple.from(node.value as readonly Node[], (item) => this.#value(item, scope));
      case "ObjectLiteral":
        return new Map(
          [...(node.value as Map<Node, Node>)].map(([key, item]) => [
            this.#value(key, scope),
            this.#value(item, scope),
          ]),
        );
      case "Identifier":
        return scope.get(node.value as string);
      case "MemberExpression":
        return this.#member(node, scope);
      case "CallExpression":
        return this.#call(node, scope);
      case "FilterExpression":
        return this.#filter(node["filter"] as Node, this.#value(node["operand"], scope), scope);
      case "TestExpression":
        return this.#test(node, scope);
      case "UnaryExpression":
        return this.#unary(node, scope);
      case "BinaryExpression":
        return this.#binary(node, scope);
      case "Ternary":
        return this.#value(
          isTrue(this.#value(node["condition"], scope)) ? node["trueExpr"] : node["falseExpr"],
          scope,
        );
      case "SelectExpression":
        return isTrue(this.#value(node["test"], scope)) ? this.#value(node["lhs"], scope) : undefined;
      default:
        throw new SyntaxError(`Unknown node type: ${node.type}`);
    }
  }

  #member(node: Node, scope: Scope): Value {
    const object = this.#value(node["object"], scope);
    const property = node["property"] as Node;
    if (property.type === "SliceExpression") {
      const [start, stop, step] = ["start", "stop", "step"].map((name) => {
        const bound = property[name];
        return bound === undefined ? undefined : this.#value(bound, scope);
      });
      return sliceOf(object, [start, stop, step], this.#budget);
    }
    if (node["computed"]) return itemOf(object, this.#value(property, scope), this.#budget);
    return property.type === "Identifier"
      ? attributeOf(object, property.value as string, this.#budget)
      : itemOf(object, property.value, this.#budget);
  }

  #unary(node: Node, scope: Scope): Value {
    const value = this.#value(node["argument"], scope);
    const operator = (node["operator"] as { value: string }).value;
    if (operator === "not") return !isTrue(value);
    const number = numberOf(value);
    if (number === undefined) throw new Error(`bad operand type for unary ${operator}: '${typeName(value)}'`);
    const signed = operator === "-" ? -number : number;
    return typeName(value) === "float" ? float(signed) : signed;
  }

  #binary(node: Node, scope: Scope): Value {
    const operator = (node["operator"] as { value: string }).value;
    const left = this.#value(node["left"], scope);
    if (operator === "and") return isTrue(left) ? this.#value(node["right"], scope) : left;
    if (operator === "or") return isTrue(left) ? left : this.#value(node["right"], scope);
    const right = this.#value(node["right"], scope);
    switch (operator) {
      case "==":
        return isEqual(left, right, this.#budget);
      case "!=":
        return !isEqual(left, right, this.#budget);
      case "in":
        return contains(right, left, this.#budget);
      case "not in":
        return !contains(right, left, this.#budget);
      case "~": {
        const [one, other] = [toText(left, this.#budget), toText(right, this.#budget)];
        this.#budget.characters(one.length + other.length);
        return one + other;
      }
      case "<":
        return compare(left, right, this.#budget) < 0;
      case "<=":
        return compare(left, right, this.#budget) <= 0;
      case ">":
        return compare(left, right, this.#budget) > 0;
      case ">=":
        return compare(left, right, this.#budget) >= 0;
      default:
        return this.#arithmetic(operator, left, right);
    }
  }

  #arithmetic(operator: string, left: Value, right: Value): Value {
    const [one, other] = [numberOf(left), numberOf(right)];
    if (one !== undefined && other !== undefined) {
      const isExact = ![left, right].some((value) => typeName(value) === "float") && operator !== "/";
      const result = calculate(operator, one, other);
      if (!Number.isFinite(result)) throw new Error(`${one} ${operator} ${other} is not a finite number`);
      return isExact && Number.isInteger(result) ? result : float(result);
    }
    if (operator === "%" && typeof left === "string") return formatPercent(left, right, this.#budget);
    if (
      operator === "+" &&
      isText(left) &&
      isText(right) &&
      !(typeof left === "string" && typeof right === "string")
    ) {
      const [before, behind] = [SafeText.escape(left), SafeText.escape(right)];
      this.#budget.characters(before.length + behind.length);
      return new SafeText(before + behind);
    }
    if (operator === "+" && typeof left === "string" && typeof right === "string") {
      this.#budget.characters(left.length + right.length);
      return left + right;
    }
    if (
      operator === "+" &&
      Array.isArray(left) &&
      Array.isArray(right) &&
      typeName(left) === typeName(right)
    ) {
      this.#budget.values(left.length + right.length);
      return left.concat(right);
    }
    if (operator === "*" && typeof left === "string" && isInteger(right)) return this.#repeated(left, other!);
    if (operator === "*" && typeof right === "string" && isInteger(left)) return this.#repeated(right, one!);
    if (operator === "*" && Array.isArray(left) && isInteger(right)) {
      const count = Math.max(0, other!);
      this.#budget.values(left.length * count);
      return Array.from({ length: count }, () => left as Value[]).flat();
    }
    throw new Error(
      `unsupported operand types for ${operator}: '${typeName(left)}' and '${typeName(right)}'`,
    );
  }

  #repeated(text: string, count: number): string {
    const times = Math.max(0, count);
    this.#budget.characters(text.length * times);
    return text.repeat(times);
  }

  /** Python's `range`. */
  #range(args: readonly Value[]): number[] {
    const [first = 0, last, step = 1] = args.map((arg) => numberOf(arg));
    const [start, stop] = last === undefined ? [0, first] : [first, last];
    if (step === 0) throw new Error("range() arg 3 must not be zero");
    const count = Math.max(0, Math.ceil((stop - start) / step));
    this.#budget.values(count);
    return Array.from({ length: count }, (_, index) => start + index * step);
  }
}

function isText(value: Value): value is string | SafeText {
  return typeof value === "string" || value instanceof SafeText;
}

function calculate(operator: string, left: number, right: number): number {
  switch (operator) {
    case "+":
      return left + right;
    case "-":
      return left - right;
    case "*":
      return left * right;
    case "/":
      return left / right;
    case "//":
      return Math.floor(left / right);
    case "%":
      return left - right * Math.floor(left / right);
    case "**":
      return left ** right;
    default:
      throw new SyntaxError(`Unknown operator: ${operator}`);
  }
}
