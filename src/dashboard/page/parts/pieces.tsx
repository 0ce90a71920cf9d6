import type { ComponentChildren } from "preact";
import type { Asked } from "../store.js";

/** What is said where there is nothing to show. */
export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="card empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Something that went wrong, in its own words. */
export function Problem({ text }: { readonly text: string | undefined }) {
  if (text === undefined) return null;
  return (
    <p class="problem" role="alert">
      {text}
    </p>
  );
}

/** What was asked for: its problem, that it is on its way, or itself. */
export function Answer<T>({
  asked,
  children,
}: {
  readonly asked: Asked<T>;
  readonly children: (answer: T) => ComponentChildren;
}) {
  if (asked.answer !== undefined) return <>{children(asked.answer)}</>;
  if (asked.problem !== undefined) return <Problem text={asked.problem} />;
  return (
    <p class="note" role="status">
      Loading…
    </p>
  );
}

/** The colour of a run by its place among those that are compared. */
export function Swatch({ place }: { readonly place: number }) {
  return <span class="swatch" style={{ "--swatch": `var(--run-${place})` }} aria-hidden="true" />;
}

/** A command to copy. */
export function Command({ children }: { readonly children: string }) {
  return <code class="mono">{children}</code>;
}
