import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import {
  type Field,
  type FilledMessage,
  type MessageField,
  opaque,
  option,
  optional,
  type Shape,
  text,
  wrongValue,
} from "../../wire/index.js";
import type { StudentFormat } from "./student-format.js";
import { checkFormats } from "./student-format.js";
import { type OpenTeacher, openTeacher, type Teacher, teacherField } from "./teacher.js";

/** A data set with its teacher. */
export interface Domain {
  readonly teacher: Teacher;
  /** Name of the domain in the metric `teacher_kl/NAME`. Default: `dataset_0`, `dataset_1` and so on. */
  readonly name?: string | undefined;
}

/** One data set with its teacher, or several as `domains`. */
export type OneOrMoreDomains<D extends Domain> =
  | (D & { readonly domains?: undefined })
  | ({ readonly domains: readonly D[] } & { readonly [K in keyof D]?: undefined });

/** A data set with a name. */
export type NamedDomain<D extends Domain> = D & { readonly name: string };

/** The option table of every data set. */
export const DOMAIN_OPTIONS = {
  teacher: option(teacherField, "teacher model", { flag: true }),
  name: option(optional(text), "name of its metrics, teacher_kl/NAME", {
    otherwise: "dataset_0, dataset_1, ...",
  }),
};

/** Option table for one data set, or several as `domains`. */
export function domainOptions<S extends Shape>(fields: S) {
  const alone = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [name, { ...field, presence: "optional" }]),
  ) as { readonly [K in keyof S]: S[K] & { readonly presence: "optional" } };
  const domains = optional(opaque as Field<readonly FilledMessage<S>[]>);
  return { ...alone, domains: option(domains, "several data sets, each with its teacher") };
}

/** The checked data sets of the options. */
export function domainsOf<D extends Domain>(
  options: OneOrMoreDomains<D>,
  domain: MessageField<Shape>,
): readonly NamedDomain<D>[] {
  const { domains } = options;
  const given = Object.keys(domain.shape).filter((key) => options[key as keyof typeof options] !== undefined);
  if (domains === undefined) {
    const only = Object.fromEntries(given.map((key) => [key, options[key as keyof typeof options]]));
    return [{ name: "dataset_0", ...domain.check(only, "") } as unknown as NamedDomain<D>];
  }
  if (given.length > 0)
    throw new ValidationError(
      given[0]!,
      `${given[0]} must be given for each of the domains, not beside them`,
    );
  if (!Array.isArray(domains) || domains.length === 0)
    throw wrongValue("domains", "a list of at least one data set with its teacher", domains);
  const named = domains.map((each, index) => {
    const checked = domain.check(each, `domains[${index}]`);
    return { name: `dataset_${index}`, ...checked } as unknown as NamedDomain<D>;
  });
  for (const [index, { name }] of named.entries()) {
    const first = named.findIndex((other) => other.name === name);
    if (first < index)
      throw new ValidationError(
        `domains[${index}].name`,
        `domains[${index}].name: "${name}" is already used by domains[${first}]; names must be unique`,
      );
  }
  return named;
}

/** The teacher of each data set. A shared teacher is opened once. */
export interface Teachers extends AsyncDisposable {
  readonly teachers: readonly OpenTeacher[];
}

/** Opens the teachers and refuses those that read another chat format than the student's. The caller closes them. */
export async function openTeachers(
  service: ServiceClient,
  domains: readonly NamedDomain<Domain>[],
  student: StudentFormat,
  signal: AbortSignal | undefined,
): Promise<Teachers> {
  const opened = new Map<Teacher, OpenTeacher>();
  const close = async () => {
    await Promise.all([...opened.values()].map((teacher) => teacher[Symbol.asyncDispose]()));
  };
  try {
    for (const [index, { teacher }] of domains.entries()) {
      if (opened.has(teacher)) continue;
      const open = await openTeacher(service, teacher, signal);
      opened.set(teacher, open);
      const field = domains.length === 1 ? "teacher" : `domains[${index}].teacher`;
      await checkFormats(service, open, student, { field, signal });
    }
    const teachers = domains.map(({ teacher }) => opened.get(teacher)!);
    return { teachers, [Symbol.asyncDispose]: close };
  } catch (error) {
    await close();
    throw error;
  }
}

/** Describes the data sets in `config.json`. */
export function domainsConfig(domains: readonly NamedDomain<Domain>[], { teachers }: Teachers) {
  return domains.map(({ name }, index) => ({ name, teacher: teachers[index]!.name }));
}

/** Describes the teachers in the plan of a run. */
export function describeTeachers(domains: readonly NamedDomain<Domain>[], { teachers }: Teachers): string {
  if (domains.length === 1) return teachers[0]!.name;
  return domains.map(({ name }, index) => `${teachers[index]!.name} for ${name}`).join(", ");
}

/** A divergence summed over a number of tokens or their weights. */
export interface DivergenceSum {
  readonly name: string;
  readonly divergence: number;
  readonly weight: number;
}

/** `teacher_kl`, and `teacher_kl/NAME` for each data set: means over the tokens that count. */
export function divergenceMetrics(sums: readonly DivergenceSum[]): Record<string, number> {
  const mean = (some: readonly DivergenceSum[]) =>
    some.reduce((sum, each) => sum + each.divergence, 0) / some.reduce((sum, each) => sum + each.weight, 0);
  const measured = sums.filter(({ weight }) => weight > 0);
  if (measured.length === 0) return {};
  const names = [...new Set(measured.map(({ name }) => name))];
  return {
    teacher_kl: mean(measured),
    ...Object.fromEntries(
      names.map((name) => [`teacher_kl/${name}`, mean(measured.filter((each) => each.name === name))]),
    ),
  };
}
