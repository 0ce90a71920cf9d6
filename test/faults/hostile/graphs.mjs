// Custom losses that are small to send and large to check or to run, or that name what no loss may reach.
import { oneOf } from "../shared/random.mjs";

const whole = (random, low, high) => low + Math.floor(random() * (high - low + 1));
const times = (count, make) => Array.from({ length: count }, (_, index) => make(index));
const ref = (name) => ({ ref: name });
const nested = (depth, inner, around) => {
  let value = inner;
  for (let level = 0; level < depth; level += 1) value = around(value, level);
  return value;
};

/** A graph of these calls after the logprobs; each is `[target, args, kwargs]` or a node, and the last one is the loss. */
function graphOf(calls, output) {
  const nodes = calls.map((call, index) =>
    Array.isArray(call)
      ? { op: "call_function", name: `n${index}`, target: call[0], args: call[1], kwargs: call[2] ?? {} }
      : { name: `n${index}`, args: [], kwargs: {}, ...call },
  );
  const last = nodes.at(-1)?.name ?? "logprobs";
  const loss = { op: "call_method", name: "loss", target: "sum", args: [ref(last)], kwargs: {} };
  return {
    format: 1,
    nodes: [
      { op: "placeholder", name: "logprobs", target: "logprobs", args: [], kwargs: {} },
      ...nodes,
      loss,
      {
        op: "output",
        name: "output",
        target: "output",
        args: output ?? [{ tuple: [ref("loss"), { dict: { "custom/x:sum": ref("loss") } }] }],
        kwargs: {},
      },
    ],
  };
}

const before = (index) => ref(index === 0 ? "logprobs" : `n${index - 1}`);
const HUGE = [2 ** 20, 2 ** 26, 2 ** 31, 2 ** 40, 2 ** 53, 1e300];

/** By kind, from a random source: a graph, and whether it must be refused when it is sent. */
const KINDS = {
  "references forward and around": (random) => {
    const target = oneOf(random, [
      "n0",
      "n1",
      "n2",
      "loss",
      "output",
      "",
      "nowhere",
      "__proto__",
      "constructor",
    ]);
    return {
      graph: graphOf([
        ["operator.add", [ref("logprobs"), ref(target)]],
        ["operator.mul", [ref("n0"), 2]],
      ]),
      mustRefuse: true,
    };
  },
  "names used twice": () => {
    const graph = graphOf([
      ["torch.exp", [ref("logprobs")]],
      ["torch.exp", [ref("n0")]],
    ]);
    graph.nodes[2].name = "n0";
    return { graph, mustRefuse: true };
  },
  "unknown targets": (random) => {
    const target = oneOf(random, [
      ...[
        "builtins.__import__",
        "__import__",
        "eval",
        "os.system",
        "torch.load",
        "torch.hub.load",
        "torch.ops.aten.exp",
      ],
      ...[
        "torch.__class__",
        "constructor",
        "toString",
        "__proto__",
        "hasOwnProperty",
        "torch.constructor",
        "operator.__proto__",
      ],
      ...[
        "torch.utils.cpp_extension.load_inline",
        "subprocess.run",
        "getattr.x",
        "torch.getattr",
        "math.constructor",
        "torch.",
      ],
    ]);
    const op = oneOf(random, ["call_function", "call_method", "call_module", "get_attr"]);
    return { graph: graphOf([{ op, target, args: [ref("logprobs"), "id"] }]), mustRefuse: true };
  },
  "attributes of values": (random) => {
    const name = oneOf(random, [
      "__class__",
      "__init__",
      "grad_fn",
      "constructor",
      "tensor",
      "__globals__",
      "prototype",
      "data",
    ]);
    return {
      graph: graphOf([
        ["getattr", [ref("logprobs"), name]],
        ["operator.mul", [ref("logprobs"), ref("n0")]],
      ]),
    };
  },
  "deep arguments": (random) => {
    const depth = oneOf(random, [9, 100, 1000]);
    const around = oneOf(random, [
      (inner) => [inner],
      (inner) => ({ tuple: [inner] }),
      (inner) => ({ dict: { a: inner } }),
    ]);
    return { graph: graphOf([["torch.stack", [nested(depth, ref("logprobs"), around)]]]), mustRefuse: true };
  },
  "wide arguments": (random) => {
    const count = oneOf(random, [1025, 20_000, 100_000]);
    return { graph: graphOf([["torch.stack", [times(count, () => ref("logprobs"))]]]), mustRefuse: true };
  },
  "too many nodes": (random) => {
    const count = whole(random, 2048, 6000);
    return { graph: graphOf(times(count, (index) => ["torch.exp", [before(index)]])), mustRefuse: true };
  },
  "constants without end": (random) => {
    const size = oneOf(random, HUGE);
    return {
      graph: graphOf([
        oneOf(random, [
          ["torch.zeros", [size]],
          ["torch.ones", [[size, size]]],
          ["torch.full", [[size, 4], 1.5]],
          ["torch.arange", [size]],
          ["torch.arange", [0, 1, 1 / size]],
          ["torch.nn.functional.pad", [ref("logprobs"), [size, size]]],
          ["torch.nn.functional.one_hot", [{ ref: "logprobs" }, size]],
        ]),
        ["operator.mul", [ref("n0"), 0]],
        ["operator.add", [{ ref: "n1" }, 1]],
      ]),
    };
  },
  "shapes that grow": (random) => {
    const grow = oneOf(random, [
      (last) => ["torch.cat", [[last, last]]],
      (last) => ["torch.stack", [[last, last]]],
      (last) => ({ op: "call_method", target: "repeat", args: [last, 2] }),
      (last) => ["torch.repeat_interleave", [last, 3]],
      (last) => ["torch.outer", [{ ...last }, last]],
      (last) => ["torch.nn.functional.pad", [last, [1000, 1000]]],
    ]);
    return { graph: graphOf(times(whole(random, 20, 200), (index) => grow(before(index)))) };
  },
  "broadcasts that grow": (random) => {
    const rank = whole(random, 5, 12);
    // One vector along each of many dimensions, multiplied.
    const views = times(rank, (index) => [
      "torch.reshape",
      [ref("logprobs"), [-1, ...times(index, () => 1)]],
    ]);
    const products = times(rank - 1, (index) => [
      "operator.mul",
      [index === 0 ? ref("n0") : ref(`n${rank + index - 1}`), ref(`n${index + 1}`)],
    ]);
    return { graph: graphOf([...views, ...products]) };
  },
  expansions: (random) => {
    const size = oneOf(random, HUGE);
    return { graph: graphOf([{ op: "call_method", target: "expand", args: [ref("logprobs"), size, -1] }]) };
  },
  "products of matrices": (random) => {
    const side = whole(random, 300, 5000);
    return {
      graph: graphOf([
        ["torch.ones", [[side, side]]],
        oneOf(random, [
          ["torch.matmul", [ref("n0"), ref("n0")]],
          ["torch.functional.einsum", ["ab,cd,ef->abcdef", ref("n0"), ref("n0"), ref("n0")]],
          ["torch.functional.einsum", ["ab,bc,cd->ad", ref("n0"), ref("n0"), ref("n0")]],
        ]),
        ["operator.add", [ref("n1"), 0]],
      ]),
    };
  },
  "long chains of work": (random) => {
    const size = whole(random, 10_000, 200_000);
    const step = oneOf(random, [
      (last) => ["torch.sort", [last]],
      (last) => ["torch.exp", [last]],
      (last) => ["torch.cumsum", [last, 0]],
    ]);
    const chain = times(whole(random, 200, 1500), (index) => {
      const call = step(ref(index === 0 ? "n0" : `n${index}`));
      return call;
    });
    return { graph: graphOf([["torch.arange", [size]], ...chain]) };
  },
  "pieces without number": (random) => ({
    graph: graphOf([
      ["torch.zeros", [whole(random, 100_000, 20_000_000)]],
      oneOf(random, [
        ["torch.unbind", [ref("n0")]],
        ["torch.functional.split", [ref("n0"), 1]],
        ["torch.chunk", [ref("n0"), 10_000_000]],
      ]),
      ["operator.getitem", [ref("n1"), 0]],
    ]),
  }),
  "odd indices": (random) => {
    const index = oneOf(random, [
      ...[
        1e9,
        -1e9,
        0.5,
        "0",
        true,
        { float: "nan" },
        { slice: [null, null, 0] },
        { slice: [null, null, -1] },
      ],
      ...[
        { slice: [0, 1e15, 1] },
        { tuple: [0, 0, 0] },
        { tuple: times(40, () => null) },
        { tuple: [{ ellipsis: true }, { ellipsis: true }] },
      ],
      ...[{ dict: {} }, [], [[0]], { dtype: "float32" }],
    ]);
    return { graph: graphOf([["operator.getitem", [ref("logprobs"), index]]]) };
  },
  "odd arguments": (random) => {
    const value = oneOf(random, [
      ...[
        null,
        true,
        "x",
        [],
        {},
        { ref: 1 },
        { ref: null },
        { a: 1, b: 2 },
        { tuple: 1 },
        { slice: [1] },
        { float: "1" },
      ],
      ...[
        { float: "constructor" },
        { float: "__proto__" },
        { dtype: "float16" },
        { dtype: 1 },
        { device: "cuda:0" },
        { unknown: 1 },
        1e308,
        -0,
      ],
      ...["x".repeat(10_000)],
    ]);
    const target = oneOf(random, [
      "torch.clamp",
      "torch.sum",
      "torch.softmax",
      "torch.roll",
      "torch.norm",
      "torch.reshape",
      "operator.pow",
    ]);
    return { graph: graphOf([[target, [ref("logprobs"), value]]]) };
  },
  "odd outputs": (random) => {
    const output = oneOf(random, [
      ...[
        [],
        [1],
        [ref("loss")],
        [{ tuple: [ref("loss")] }],
        [{ tuple: [1, { dict: {} }] }],
        [{ tuple: [ref("loss"), 1] }],
      ],
      ...["loss:sum", "custom/x", "custom/X:sum", "__proto__", `custom/${"x".repeat(70)}:sum`].map((name) => [
        { tuple: [ref("loss"), { dict: { [name]: ref("loss") } }] },
      ]),
      ...[
        [{ tuple: [ref("loss"), { dict: { "custom/x:sum": 1 } }] }],
        [{ tuple: [ref("loss"), { dict: {} }, 1] }],
      ],
    ]);
    return {
      graph: graphOf([["torch.exp", [ref("logprobs")]]], output),
      mustRefuse: JSON.stringify(output).includes('"__proto__"') === false,
    };
  },
  "no number at all": (random) => ({
    graph: graphOf([
      oneOf(random, [
        ["torch.log", [ref("logprobs")]],
        ["operator.truediv", [ref("logprobs"), 0]],
        ["operator.mul", [ref("logprobs"), { float: "inf" }]],
        ["operator.pow", [ref("logprobs"), 0.5]],
        ["torch.exp", [{ ref: "logprobs" }]],
      ]),
      ["operator.mul", [ref("n0"), oneOf(random, [1e300, { float: "nan" }, { float: "-inf" }])]],
    ]),
  }),
};

export const GRAPH_KINDS = Object.keys(KINDS);

/** One graph of the kind that this number stands for. */
export function hostileGraph(random, index) {
  const kind = GRAPH_KINDS[index % GRAPH_KINDS.length];
  return { kind, ...KINDS[kind](random) };
}

const INPUTS = [{ name: "logprobs", rank: 1 }];

const post = (world, path, body) => ({
  method: "POST",
  path: `/api/v1${path}`,
  headers: [
    ["content-type", "application/json"],
    ["x-api-key", world.attacker.key],
  ],
  body: Buffer.from(JSON.stringify(body)),
});

function creation({ attacker }, index, graph) {
  const named = { session_id: attacker.session, custom_loss_seq_id: index, name: "hostile", inputs: INPUTS };
  return { ...named, graph };
}

/** Passes with the loss that was sent a little earlier. */
const BEHIND = 9;

export const graphs = {
  name: "graphs",
  limits: { customLossesPerSession: 100_000 },
  ordinary: (_random, world, index) => ({
    kind: "ordinary",
    request: post(
      world,
      "/create_custom_loss",
      creation(world, 1_000_000 + index, graphOf([["torch.exp", [ref("logprobs")]]])),
    ),
    check: ({ request_id: id }) => (typeof id === "string" ? undefined : "no request id"),
  }),
  hostile: (random, world, index) => {
    if (index % 2 === 0 || index < BEHIND) {
      const { kind, graph, mustRefuse } = hostileGraph(random, Math.floor(index / 2));
      return { kind, mustRefuse, request: post(world, "/create_custom_loss", creation(world, index, graph)) };
    }
    const lossId = `${world.attacker.session}:loss:${index - BEHIND}`;
    const datum = {
      model_input: { chunks: [{ type: "encoded_text", tokens: times(16, (at) => at + 1) }] },
      loss_fn_inputs: { target_tokens: { data: times(16, (at) => at + 2), dtype: "int64" } },
    };
    const input = { data: [datum, datum], loss_fn: "custom", loss_fn_config: { loss_id: lossId } };
    return {
      kind: "a pass",
      request: post(world, "/forward_backward", {
        model_id: world.attacker.model,
        forward_backward_input: input,
      }),
    };
  },
};
