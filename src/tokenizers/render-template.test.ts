import { beforeAll, describe, expect, it } from "vitest";
import { readPythonJson } from "./python-json.js";
import { type RenderTemplate, templateCompiler } from "./render-template.js";

/** Whichever budget is used up first. */
const TOO_LONG = /takes more than 500000 steps|takes longer than 5 s/;

/** What Python's Jinja 3.1 writes, as transformers sets it up. */
const AS_IN_PYTHON: readonly (readonly [source: string, text: string])[] = [
  ['{{ "xxabcxx".strip("x") }}|{{ "##a#".lstrip("#") }}|{{ "a\\n\\n".rstrip("\\n") }}|', "abc|a#|a|"],
  [
    '{{ "a  b c ".split() }}{{ "a-b-c".split("-", 1) }}{{ "a-b-c".rsplit("-", 1) }}',
    "['a', 'b', 'c']['a', 'b-c']['a-b', 'c']",
  ],
  ['{{ "héllo🎉x"[5:] }}{{ "abc"[::-1] }}{{ [1, 2, 3][-2:] }}', "🎉xcba[2, 3]"],
  [
    '{{ none }}{{ missing }}{{ missing ~ "x" }}{{ missing | default("d") }}{{ none | default("d") }}',
    "NonexdNone",
  ],
  ['{{ [1, [2]] == [1, [2]] }}{{ {"a": 1} == {"a": 1.0} }}{{ [1] in [[1], 2] }}', "TrueTrueTrue"],
  ['{{ {"b": 1, "a": {"c": []}} | tojson(indent=2) }}', '{\n  "b": 1,\n  "a": {\n    "c": []\n  }\n}'],
  ['{{ {"b": "é<&>"} | tojson }}{{ "é" | tojson(ensure_ascii=true) }}', '{"b": "é<&>"}"\\u00e9"'],
  [
    '{{ ["b", "A"] | sort | join(",") }}{{ [3, 1] | max }}{{ [{"n": 2}, {"n": 1}] | sort(attribute="n") | map(attribute="n") | list }}',
    "A,b3[1, 2]",
  ],
  ["{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}", "3 -4 2 3.5 8"],
  ['{{ "%s is %d" | format("x", 3) }}{{ "%s" % "y" }}{{ "{} {b}".format(1, b=2) }}', "x is 3y1 2"],
  [
    '{{ [1, 2, 3] | select("odd") | list }}{{ ["a"] | map("upper") | join }}{{ 4 is divisibleby(2) }}{{ 1 is in [1, 2] }}',
    "[1, 3]ATrueTrue",
  ],
  [
    '{% for c in "ab" %}{{ c }}{{ loop.index }}{% endfor %}{% for k, v in {"a": 1}.items() %}{{ k }}{{ v }}{% endfor %}',
    "a1b2a1",
  ],
  ["{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 9 %}{% endfor %}{{ x }}", "111"],
  [
    '{% macro m(a, b="d") %}[{{ a }}{{ b }}{{ kwargs }}{{ varargs }}]{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, z=4) }}',
    "[1d{}()][12{'z': 4}(3,)]",
  ],
  [
    '{% raw %}{{ x }}{% endraw %}{%- raw -%} {% y {% raw %} {%- endraw %}{{ "a" if false }}{{ "<" | e }}{{ "a<" + ("<" | safe) }}',
    "{{ x }}{% y {% raw %}&lt;a&lt;<",
  ],
  [
    '{{ {"items": 1}["items"] }}{{ {"items": 1}.items is callable }}{{ "abc".length is defined }}',
    "1TrueFalse",
  ],
  [
    '{{ "hello wORLD" | title }}{{ "hello wORLD" | capitalize }}{{ "a\\nb" | indent(2) }}{{ 2.5 | round }}{{ "3.7" | int }}',
    "Hello WorldHello worlda\n  b2.03",
  ],
  [
    '{{ [1, 2, 3] | reject("equalto", 2) | list }}{{ [{"a": 1}, {}] | selectattr("a", "defined") | list }}',
    "[1, 3][{'a': 1}]",
  ],
];

let compile: (source: string) => RenderTemplate;
beforeAll(async () => {
  compile = await templateCompiler();
});
const render = (source: string, variables = {}) => compile(source)(variables);

describe("a Jinja template", () => {
  it.each([
    ["a range without end", "{% for i in range(10**12) %}{% endfor %}", /list of 1000000000000 values/],
    ["a range that never arrives", "{{ range(0, 5, 0) }}", /range\(\) arg 3 must not be zero/],
    ["loops in loops", `${"{% for i in range(1000) %}".repeat(4)}${"{% endfor %}".repeat(4)}`, TOO_LONG],
    [
      "a text that doubles",
      `{% set ns = namespace(s="ab") %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}`,
      /writes more than 16777216 characters|takes more than 500000 steps/,
    ],
    [
      "a list that holds itself twice, again and again",
      `{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l | tojson }}`,
      TOO_LONG,
    ],
    ...[
      `s.replace("", s)`,
      `s | replace("a", s)`,
      `range(10000) | join(s)`,
      `s | indent(1000000000)`,
      `(s | replace("a", "\\n")) | indent(5000)`,
      `range(100) | tojson(indent=1000000)`,
      `range(10000) | tojson(separators=[s, ":"])`,
      `[s, s, s, s] | join`,
    ].map(
      (filter) =>
        [
          `a filter that multiplies: ${filter}`,
          `{% set ns = namespace(s="a") %}{% for i in range(${filter.startsWith("[") ? 23 : 13}) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{% set s = ns.s %}{{ ${filter} }}`,
          /writes more than 16777216 characters/,
        ] as [string, string, RegExp],
    ),
    [
      "an object that does",
      `{% set ns = namespace(l={}) %}{% for i in range(60) %}{% set ns.l = {"a": ns.l, "b": ns.l} %}{% endfor %}{{ ns.l | tojson }}`,
      TOO_LONG,
    ],
    [
      "a macro that calls itself twice",
      "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
      TOO_LONG,
    ],
    ["a source that is too long", "x".repeat(2 ** 17 + 1), /longer than 131072 characters/],
    ["spaces without end", `a${" ".repeat(100_000)}b`, /more than 1000 characters of white space in a row/],
    ["raw blocks that never end", "{% raw %}".repeat(14_000), /Unknown statement type: raw/],
  ])("with %s ends with an error", (_, source, message) => {
    expect(() => render(source)).toThrow(message);
  });

  it.each(AS_IN_PYTHON)("%s is written as Python writes it", (source, text) => {
    expect(render(source)).toBe(text);
  });

  it("prints numbers of a request as they were written", () => {
    const given = {
      exact: readPythonJson('{"10": 1.0, "2": 12345678901234567890, "a": 1e22}'),
      plain: { b: 0.5, a: 1 },
    };
    expect(render("{{ exact }}{{ exact | tojson }}{{ plain }}", given)).toBe(
      `{'10': 1.0, '2': 12345678901234567890, 'a': 1e+22}{"10": 1.0, "2": 12345678901234567890, "a": 1e+22}{'b': 0.5, 'a': 1}`,
    );
  });

  it("renders long conversations within its budget", () => {
    const messages = Array.from({ length: 2000 }, (_, index) => ({
      role: index % 2 === 0 ? "user" : "assistant",
      content: "word ".repeat(200),
    }));
    const source = `{%- for message in messages -%}{%- if message.role == "user" and message.content is string -%}
<|user|>{{ message.content | trim }}{%- else -%}<|assistant|>{{ message["content"].strip() + "\\n" }}{%- endif -%}{%- endfor -%}`;
    expect(render(source, { messages }).length).toBeGreaterThan(1_900_000);
  });

  it("knows the names that every template may use", () => {
    expect(render("{{ range(3) | join(',') }} {{ range(5, 1, -2) | join(',') }}")).toBe("0,1,2 5,3");
    expect(render("{{ none is none and True and not False }}")).toBe("True");
    const now = () => new Date(2026, 6, 5, 15, 4);
    expect(compile("{{ strftime_now('%Y-%m-%d %-d %B %I:%M %p') }}")({}, now)).toBe(
      "2026-07-05 5 July 03:04 PM",
    );
    expect(() => render("{{ raise_exception('no') }}")).toThrow("no");
    // A variable of the caller goes before them.
    expect(render("{{ range }}", { range: 7 })).toBe("7");
  });
});
