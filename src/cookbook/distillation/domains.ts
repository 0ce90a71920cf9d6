import type { ServiceClient } from "../../clients/index.js";
import { ValidationError } from "../../errors.js";
import { checkKeys, checkObject, wrongValue } from "../../wire/index.js";
import type { StudentFormat } from "./student-format.js";
import { checkFormats } from "./student-format.js";
import { checkTeacher, type OpenTeacher, openTeacher, type Teacher } from "./teacher.js";

/** A data set and who teaches it. */
export interface Domain {
  readonly teacher: Teacher;
  /** What it is measured as, `teacher_kl/NAME`. Default: `dataset_0`, `dataset_1` and so on. */
  readonly name?: string | undefined;
}

/** One data set with its teacher, or several of them as `domains`. */
export type OneOrSeveral<D extends Domain> =
  | (D & { readonly domains?: undefined })
  | ({ readonly domains: readonly D[] } & { readonly [K in keyof D]?: undefined });

/** A data set that has a name. */
export type NamedDomain<D extends Domain> = D & { readonly name: string };

/** The data sets that options name. `check` refuses what is wrong with one, whose fields begin with `prefix`. */
export function domainsOf<D extends Domain>(
  options: OneOrSeveral<D>,
  keys: readonly (keyof D & string)[],
  check: (domain: D, prefix: string) => void,
): readonly NamedDomain<D>[] {
  const checked = (domain: D, prefix: string, index: number): NamedDomain<D> => {
    checkTeacher(domain.teacher, `${prefix}teacher`);
    const { name = `dataset_${index}` } = domain;
    if (typeof name !== "string" || name === "") throw wrongValue(`${prefix}name`, "a name", name);
    check(domain, prefix);
    return { ...domain, name };
  };
  const { domains } = options;
  const given = keys.filter((key) => options[key as keyof typeof options] !== undefined);
  if (domains === undefined) {
    const only = Object.fromEntries(given.map((key) => [key, options[key as keyof typeof options]]));
    return [checked(only as unknown as D, "", 0)];
  }
  if (given.length > 0)
    throw new ValidationError(
      given[0]!,
      `${given[0]} must be given for each of the domains, not beside them`,
    );
  if (!Array.isArray(domains) || domains.length === 0)
    throw wrongValue("domains", "a list of at least one data set with its teacher", domains);
  const named = domains.map((domain: D, index) => {
    checkObject(domain, `domains[${index}]`);
    checkKeys(domain, new Set(keys), `domains[${index}]`);
    return checked(domain, `domains[${index}].`, index);
  });
  for (const [index, { name }] of named.entries()) {
    const first = named.findIndex((other) => other.name === name);
    if (first < index)
      throw new ValidationError(
        `domains[${index}].name`,
        `domains[${index}].name must be its own, and ${name} is that of domains[${first}] too`,
      );
  }
  return named;
}

/** The teacher of each data set. One that teaches several is opened once. */
export interface Teachers extends AsyncDisposable {
  readonly teachers: readonly OpenTeacher[];
}

/** Opens the teachers and refuses those that do not read what the student writes. Whoever calls this closes them. */
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

/** What `config.json` says of the data sets. */
export function domainsConfig(domains: readonly NamedDomain<Domain>[], { teachers }: Teachers) {
  return domains.map(({ name }, index) => ({ name, teacher: teachers[index]!.name }));
}

/** What people are told of the teachers. */
export function describeTeachers(domains: readonly NamedDomain<Domain>[], { teachers }: Teachers): string {
  if (domains.length === 1) return teachers[0]!.name;
  return domains.map(({ name }, index) => `${teachers[index]!.name} for ${name}`).join(", ");
}

/** A divergence summed over so many tokens, or their weights. */
export interface DivergenceSum {
  readonly name: string;
  readonly divergence: number;
  readonly weight: number;
}

/** `teacher_kl`, and `teacher_kl/NAME` of each data set: means over the tokens that count. */
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
